"""Records and names damaged at random, through the command line in this process.

PAGEBENCH_FUZZ_SEED picks the damage; a failure prints it. Without it the seed is today's.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from fakes import H200, pagebench_here
from fakes.compared import counters, side
from fakes.fuzzing import MANY, SEED, ends_well
from fakes.made import lost, rounds
from fakes.study_records import OTHER_KINDS
from pagebench.harness.cell import Cell
from pagebench.harness.environment import Environment
from pagebench.harness.records import codec
from pagebench.harness.records.rounds import Rounds, Side
from pagebench.harness.records.timing import FAILURES

CASES = 500 * MANY
ODD: tuple[Any, ...] = (
    *(None, "", "a\x1b[2J\r\n\u202e", "\ud800", "$\\foo$", "<b>[x](javascript:y)", [], {}, [None]),
    *({"a": 1}, True, -1, 0, 0.5, 1e308, -1e308, 1e-320, 2**62, 2**80, 10**400, float("nan")),
)
COMMANDS = (
    ("report", "r.jsonl"), ("report", "r.jsonl", "--json"), ("report", "r.jsonl", "--markdown"),
    ("report", "r.jsonl", "--clocks"), ("report", "r.jsonl", "--repeats"),
    ("study", "r.jsonl", "--out", "s"), ("baseline", "save", "b.json", "--counters", "r.jsonl"),
)  # fmt: skip


def sample_lines() -> list[dict[str, Any]]:
    """A line of each kind and file, as it was recorded and as it would be written today."""
    found = []
    for name in ("pages", "plan", "counters", "study", "repeats", "selftest"):
        kinds = {}
        for text in (H200 / f"{name}.jsonl").read_text().splitlines():
            line = json.loads(text)
            kinds.setdefault(line.get("kind"), line)
        found += kinds.values()
    today = [codec.to_json(codec.from_json(line)) for line in found]
    return found + today + list(map(codec.to_json, OTHER_KINDS))


LINES = sample_lines()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else ()
    for name, part in items or (enumerate(value[:2]) if isinstance(value, list) else ()):
        yield (*path, name)
        yield from places(part, (*path, name))


def damaged(line: dict[str, Any], dice: random.Random) -> str:
    line = deepcopy(line)
    *above, last = dice.choice(list(places(line)))
    part: Any = line
    for name in above:
        part = part[name]
    if dice.random() < 0.1:
        del part[last]
    else:
        part[last] = dice.choice(ODD)
    text = json.dumps(line)
    return text[: dice.randrange(len(text))] if dice.random() < 0.1 else text


def test_damaged_records_end_in_a_line(in_tmp: Path) -> None:
    """3acd176 ended 142 of 19,722 such lines in a traceback."""
    dice = random.Random(SEED)
    for number in range(CASES):
        text = damaged(dice.choice(LINES), dice)
        whole = json.dumps(dice.choice(LINES))
        Path("r.jsonl").write_text("\n".join(dice.choice([(text,), (text, whole), (whole, text)])))
        words = dice.choice(COMMANDS)
        told = f"PAGEBENCH_FUZZ_SEED={SEED}, case {number}: {words}: {text[:2000]}"
        ends_well(pagebench_here(*words), told)


def test_damaged_sides_end_in_a_line(in_tmp: Path) -> None:
    """3acd176 compared no files."""
    dice = random.Random(SEED)
    lines = [codec.to_json(each) for each in (*side(100.0), counters(ldg=1000))]
    lines += [line for line in LINES if line["kind"] in ("rounds", "group")]
    Path("base.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for number in range(CASES // 5):
        head = list(map(json.dumps, lines))
        at = dice.randrange(len(head))
        head[at] = damaged(lines[at], dice)
        Path("head.jsonl").write_text("\n".join(dice.sample(head, len(head))))
        words = dice.sample(("base.jsonl", "head.jsonl"), 2)
        option = dice.choice(((), ("--json",), ("--markdown",), ("--strict",)))
        told = f"PAGEBENCH_FUZZ_SEED={SEED}, case {number}: {words} {option}: {head[at][:2000]}"
        ends_well(pagebench_here("compare", *words, *option), told)


def test_odd_names_end_in_a_line(in_tmp: Path) -> None:
    """3acd176 sent control characters of names back to the terminal."""
    dice = random.Random(SEED)
    words = [
        *[
            "xqa",
            "shared",
            "distinct",
            "prefix50",
            "p16",
            "p0",
            "b99999999",
            "l1",
            "r101",
            "h3x2",
            "d7",
            "e4m3",
            "hnd",
            "w1",
        ]
    ]
    odd = ["\x1b[2J", "\u202e", "", "p" + "9" * 30, "$(x)", "\n", "--", "p٣", "x" * 5000]
    for number in range(CASES // 2):
        name = "_".join(dice.choice(words + odd) for _ in range(dice.randrange(1, 6)))
        command = dice.choice([("list",), ("show",), ("once", "--device", "cpu")])
        if command == ("once", "--device", "cpu"):
            name += "_\x1b"  # never a name that runs
        told = f"PAGEBENCH_FUZZ_SEED={SEED}, case {number}: {command} {name[:200]!r}"
        ends_well(pagebench_here(*command, "--", name), told)


# --- judge ----------------------------------------------------------------------------------------

PAIR = ("gather_distinct_p16_b2_l64", "gather_distinct_p32_b2_l64")
STATUSES = (*["measured"] * 12, "wrong", "crashed", "poisoned", "rejected", "refused")


class TellingWorker:
    """Answers with made-up processes: times that agree, differ, jump or fail."""

    dice: random.Random
    statuses: list[str]

    def __init__(self, *_: object) -> None:
        pass

    def ask(self, cells: tuple[Cell, ...], *_: object) -> Rounds:
        dice = self.dice
        status = dice.choice(STATUSES)
        self.statuses.append(status)
        if status != "measured":
            return lost(cells, status, dice.choice(("no", "a\x1b[2J\n\u202e", "")) or "none")
        base = dice.choice((0.001, 3.0, 500.0, 1e9))
        ratio = dice.choice((1.0, 1.0, 1.1, 0.5, 1e6))
        there = [[base, base * ratio][: len(cells)] for _ in range(5)]
        sides = tuple(
            Side(throttle=dice.choice(((), ("power", "\x1b"))), other_processes=dice.choice((0, 3)))
            for _ in cells
        )
        return rounds(
            cells,
            *there,
            clock=dice.choice(("wall", "events")),
            floor_us=dice.choice((0.0, 2.5)),
            environment=dice.choice((Environment(), Environment(gpu="NVIDIA H200"))),
            sides=dice.choice(((), sides)),
            spin_mhz=dice.choice((None, 0, 1980)),
            binary=dice.choice(((), ("a", "a"), ("a", None))),
        )

    def close(self) -> None:
        pass


def judged_lines(dice: random.Random) -> str:
    """Counters and ceilings, some damaged, some of the very cells that are judged."""
    kept = []
    for _ in range(dice.randrange(1, 5)):
        line = deepcopy(dice.choice(LINES))
        if line.get("kind") == "counters" and dice.random() < 0.9:
            line = codec.to_json(codec.from_json(line))
            cell = Cell.parse(dice.choice(PAIR))
            line |= {"cell": cell.name, "axes": msgspec.to_builtins(cell.axes())}
        kept.append(damaged(line, dice) if dice.random() < 0.5 else json.dumps(line))
    return "\n".join(kept)


def test_judge_ends_in_order_whatever_it_is_fed(in_tmp: Path) -> None:
    """3acd176 had no exit codes of a verdict, and ended damaged counters in a traceback."""
    dice = random.Random(SEED)
    told = TellingWorker
    told.dice = dice
    for number in range(CASES // 2):
        told.statuses = []
        Path("c.jsonl").write_text(judged_lines(dice))
        Path("o.jsonl").unlink(missing_ok=True)
        words = ["judge", *dice.choice((PAIR, PAIR[::-1], PAIR[:1] * 2)), "--device", "cpu"]
        words += ["--out", "o.jsonl", *dice.choice(((), ("--counters", "c.jsonl")))]
        words += dice.choice(((), ("--json",)))
        with patch("pagebench.harness.workers.interleave.Worker", told):
            done = pagebench_here(*words)
        case = f"PAGEBENCH_FUZZ_SEED={SEED}, case {number}: {words}: {told.statuses}"
        lines = None if told.statuses else 1
        ends_well(done, f"{case}\n{Path('c.jsonl').read_text()[:3000]}", lines)
        if not told.statuses:
            assert (done.returncode, done.stdout) == (2, ""), case
            continue
        verdict = json.loads(Path("o.jsonl").read_text().splitlines()[-1])
        assert verdict["kind"] == "verdict", case
        failed = set(told.statuses) & set(FAILURES)
        assert done.returncode == (1 if failed else done.returncode), case
        if failed or "refused" in told.statuses:
            assert not (verdict.get("change") or {}).get("ratio"), case


def test_damaged_baselines_end_in_a_line(in_tmp: Path) -> None:
    """3acd176 was not tried with these."""
    dice = random.Random(SEED)
    lines = [codec.to_json(codec.from_json(each)) for each in LINES if each["kind"] == "counters"]
    Path("c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert pagebench_here("baseline", "save", "b.json", "--counters", "c.jsonl").returncode == 0
    whole = json.loads(Path("b.json").read_text())
    for number in range(CASES // 5):
        Path("d.json").write_text(damaged(whole, dice))
        done = pagebench_here("baseline", "check", "d.json", "--counters", "c.jsonl")
        told = f"PAGEBENCH_FUZZ_SEED={SEED}, case {number}: {Path('d.json').read_text()[:2000]}"
        ends_well(done, told, None if done.returncode == 1 else 1)
