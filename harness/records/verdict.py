"""The verdict record: two cells, whether their work and their time differ, and what follows."""

from __future__ import annotations

from collections.abc import Mapping

from pagebench.harness.records.base import (
    IDENTITY,
    CellName,
    Json,
    Part,
    Record,
    Resolved,
    Upgrade,
)
from pagebench.harness.records.caveats import Caveat
from pagebench.harness.records.old_sentences import caveats_of
from pagebench.profiles.ceilings import CriticalPath

COUNTED = ("absent", "hidden", "exposed", "unexplained")
LIKELY = "likely "  # begins the word where the work is predicted and not counted
WORDS = (*COUNTED, *(LIKELY + word for word in COUNTED), "floor", "unclear")
UNJUDGED = ("floor", "unclear")
CAUSES = ("established", "in doubt")
OLD_ERROR = 0.05  # `error` of verdicts that did not record it yet


class Change(Part, frozen=True):
    """`word` is changed, same or unclear; `ratio` is B over A, with the interval that decided."""

    word: str
    ratio: float
    low: float
    high: float
    processes: int
    detectable: float  # smallest relative effect that is detected with 80 % power
    error: float  # chance of a wrong "changed"

    @property
    def is_decided(self) -> bool:
        return self.word != "unclear"

    def delta_us(self, before_us: float) -> tuple[float, float, float]:
        """Low, middle and high of B minus A in microseconds, where A takes `before_us`."""
        low, middle, high = ((r - 1) * before_us for r in (self.low, self.ratio, self.high))
        return low, middle, high


class SameBinary(Part, frozen=True, kw_only=True):
    """Whether both cells ran the same code in the same way. Early records lack `module`.

    `module` is what was compiled: XQA has one for each page size, all with the same kernel name.
    """

    module: bool | None = None
    symbol: bool
    launch: bool
    resources: bool

    def items(self) -> dict[str, bool]:
        """The known fields, by name."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: same for name, same in found.items() if same is not None}

    @property
    def differs(self) -> tuple[str, ...]:
        return tuple(name for name, same in self.items().items() if not same)


class Work(Part, frozen=True):
    """Stable counters of both cells, which of them were predicted, and whether one binary ran.

    `changed` maps counters to B over A, None where A counted zero; `from_knob` are those whose
    ratio the prediction gives, `from_code` those that come or go as the machine code of both says.
    """

    changed: Mapping[str, float | None]
    compared: tuple[str, ...]
    from_knob: tuple[str, ...]
    same: SameBinary
    from_code: tuple[str, ...] = ()

    @property
    def unpredicted(self) -> tuple[str, ...]:
        """Counters that changed and that neither layout, source nor machine code predicts."""
        known = (*self.from_knob, *self.from_code)
        return tuple(name for name in self.changed if name not in known)


class Verdict(Record, frozen=True, kw_only=True, tag="verdict"):
    """The conclusion about a contrast of two cells, one of `among` judged together.

    `word` is the effect. `cause`, beside a word that names work, says whether the knob is shown to
    be its cause. `expected` holds predicted work, B over A, where none was counted.
    `resolved` and `binary` say what ran of A and B; early records lack them.
    `time_us` are medians of A and B in microseconds. They, `time` and `floors` are absent without
    times; `work` is absent without counters of both, `path` without counters of B or ceilings.
    """

    contrast: str
    knob: str
    cells: tuple[CellName, CellName]
    word: str
    among: int
    predicts: str | None = None
    why: str | None = None
    time: Change | None = None
    time_us: tuple[float, float] | None = None
    floors: float | None = None
    work: Work | None = None
    cause: str | None = None
    expected: Mapping[str, float] = {}
    path: CriticalPath | None = None
    caveats: tuple[Caveat, ...] = ()
    resolved: tuple[Resolved, ...] = ()
    binary: tuple[str | None, ...] = ()
    status: str = "measured"
    kernel_sha: str | None = None  # of the content of --kernel's file

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise ValueError(f"unknown verdict {self.word}; there are {', '.join(WORDS)}")
        if self.cause not in (None, *CAUSES):
            raise ValueError(f"unknown cause {self.cause}; there are {', '.join(CAUSES)}")
        if (self.time is None) != (self.time_us is None):
            raise ValueError("a verdict needs both `time` and `time_us`, or neither")

    @property
    def failed(self) -> bool:
        """Whether another word was predicted. A likely word counts as the word."""
        return self.predicts not in (None, self.effect)

    @property
    def effect(self) -> str:
        """The word without `likely`."""
        return self.word.removeprefix(LIKELY)

    @property
    def judged(self) -> bool:
        """Whether it says anything of the knob."""
        return self.word not in UNJUDGED


DERIVED = ("headline", "because")
OF_PATH = ("path_us", "share", "sentence")


def _as_data(line: Json) -> Json:
    """Schema 1 had sentences, and three shapes: without a path, without a status, with all."""
    kept = {
        name: value for name, value in line.items() if name not in DERIVED and value is not None
    }
    kept |= {"word": kept.pop("verdict"), "caveats": caveats_of(line["because"])}
    kept.setdefault("among", 1)
    if "predicted" in kept:
        kept["predicts"] = kept.pop("predicted")
    if "time" in kept:
        kept["time"] = {"error": OLD_ERROR} | kept["time"]
    if "path" in kept:
        path = {name: value for name, value in kept["path"].items() if name not in OF_PATH}
        kept["path"] = {"by_share": []} | path | {"binding": path["binding"].split(" or ")}
    return kept


def _effect_and_cause(line: Json) -> Json:
    """Schema 2 called an effect of unknown cause `confounded`, and knew no cause beside a word."""
    work, time = line.get("work") or {}, line.get("time") or {}
    changed, differs = work.get("changed") or {}, _differing(work.get("same") or {})
    unpredicted = [name for name in changed if name not in work.get("from_knob", ())]
    caveats = [_with_work(each, unpredicted) for each in line.get("caveats", ())]
    word = line["word"]
    if word == "confounded":
        opposite = _opposite(work, time) or any(c["caveat"] == "opposite ways" for c in caveats)
        effect = "exposed" if time.get("word") == "changed" else "hidden"
        word = "unexplained" if opposite else effect
        if opposite and all(c["caveat"] != "opposite ways" for c in caveats):
            caveats.insert(0, {"caveat": "opposite ways", "predicted": False})
    other = differs and unpredicted and word in ("exposed", "hidden", "unexplained") and changed
    if other and all(c["caveat"] != "other binary" for c in caveats):
        found = {"caveat": "other binary", "differs": differs, "unpredicted": unpredicted}
        place = sum(c["caveat"] == "opposite ways" for c in caveats)
        caveats.insert(place, found)
    cause = {"cause": "in doubt" if other else "established"}
    return line | {"word": word, "caveats": caveats} | (cause if word in WITH_CAUSE else {})


WITH_CAUSE = ("exposed", "hidden")


def _differing(same: Json) -> list[str]:
    return [name for name, is_same in same.items() if is_same is False]


def _with_work(caveat: Json, unpredicted: list[str]) -> Json:
    is_other = caveat["caveat"] == "other binary"
    return caveat | ({"unpredicted": unpredicted} if is_other and unpredicted else {})


def _opposite(work: Json, time: Json) -> bool:
    """Whether all work moved against the time; fewer hits are more work."""
    names = work.get("from_knob") or list(work.get("changed") or {})
    slower = (time.get("ratio") or 1) > 1
    changed = work.get("changed") or {}
    grew = [((changed[name] or 2) > 1) != (name == "l2_hit_pct") for name in names]
    return time.get("word") == "changed" and bool(grew) and slower not in grew


UPGRADES = (
    Upgrade("caveats, not sentences; what binds is a list; word and predicts: new names", _as_data),
    Upgrade(
        IDENTITY + "; effect and cause are two words, `confounded` is none; predicted work; what "
        "differs; a kernel file's content; what ran",
        _effect_and_cause,
    ),
)
