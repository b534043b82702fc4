"""The Cell: one thing to measure, and its name. The grammar is in docs/architecture.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from msgspec.structs import asdict

from pagebench.harness.axes import Axes
from pagebench.harness.errors import UserError
from pagebench.harness.escape import brief
from pagebench.kernels.registry import is_kernel, is_name, kernel_names
from pagebench.layouts.placement import UNIT_KINDS, Placement
from pagebench.layouts.shape import Shape, SizeError
from pagebench.layouts.sharing import Sharing, Streams, prefix_tokens, share

# Batch and context by sharing, where the name gives none: the original study's two XQA profiles.
DEFAULT_SIZES = {"shared": (32, 8192), "distinct": (8, 4096), "prefix": (8, 4096)}
CONTIGUOUS = Placement()
DEFAULT_HEADS, DEFAULT_HEAD_DIM, DEFAULT_DTYPE = (16, 8), 128, "bf16"


class CellNameError(UserError):
    """A cell's name that cannot be read; the message gives the wrong word and a right one."""


def _heads(text: str) -> tuple[int, int]:
    q_heads, kv_heads = text.split("x")
    return int(q_heads), int(kv_heads)


def _sharing(text: str) -> Sharing:
    return Sharing("prefix", int(text[6:])) if text.startswith("prefix") else Sharing(text)


def _placement(text: str) -> Placement:
    match = re.fullmatch(r"([a-z]+)(\d+)", text)
    return Placement(match[1], int(match[2])) if match else Placement(text)


# axis: (pattern of the whole word, how to read what its first group holds)
WORDS: dict[str, tuple[re.Pattern[str], Callable[[str], object]]] = {
    axis: (re.compile(pattern, re.ASCII), read)
    for axis, pattern, read in (
        ("sharing", r"(distinct|shared|prefix\d+)", _sharing),
        ("placement", rf"(contiguous|scatter|(?:{'|'.join(UNIT_KINDS)})\d+)", _placement),
        ("page_size", r"p(\d+)", int),
        ("batch", r"b(\d+)", int),
        ("kv_len", r"l(\d+)", int),
        ("ragged_percent", r"r(\d+)", int),
        ("seed", r"s(\d+)", int),
        ("table_tokens", r"w(\d+)", int),
        ("heads", r"h(\d+x\d+)", _heads),
        ("head_dim", r"d(\d+)", int),
        ("dtype", r"(bf16|fp16|e4m3)", str),
        ("kv_layout", r"(hnd|nhd)", str.upper),
        ("planted_loads", r"x(\d+)", int),
        ("planted_ns", r"y(\d+)", int),
    )
}
EXAMPLES = (
    *("distinct", "shared", "prefix50", "contiguous", "scatter", "block128", "grown1"),
    *("churned1", "churnedfifo1", "churnedlifo1", "p16", "b32", "l8192", "r50", "s0", "w8192"),
    *("h16x8", "d128", "bf16", "fp16", "e4m3", "hnd", "x8", "y1000"),
)
MOST_WORD = 20  # characters: no axis has a number this long
REMOTE, LIKELY = 0.4, 0.6  # difflib ratios: a possible meaning, and a likely one
MUST = {"kernel": "xqa", "sharing": "shared", "page_size": "p16"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A kernel, whose tokens it reads, where they lie, and the sizes. SizeError on a misfit."""

    kernel: str
    sharing: Sharing
    shape: Shape
    placement: Placement = CONTIGUOUS

    def __post_init__(self) -> None:
        shape = self.shape
        if shape.table_tokens and shape.table_width == shape.pages(shape.kv_len):
            # Padded to no more than tight is tight: one cell, one name.
            object.__setattr__(self, "shape", replace(shape, table_tokens=None))
        self.placement.unit_pages(shape.page_size)
        if self.sharing.kind == "prefix":
            prefix_tokens(self.sharing, self.shape)

    @property
    def name(self) -> str:
        """The canonical name: words in one order, defaults left out."""
        return "_".join(word for word, is_default in self.words() if not is_default)

    @property
    def streams(self) -> Streams:
        """Whose tokens the requests read, computed each time."""
        return share(self.sharing, self.shape)

    def words(self) -> tuple[tuple[str, bool], ...]:
        """A word for every axis, in the order of the name, and whether the name leaves it out."""
        shape, heads = self.shape, (self.shape.q_heads, self.shape.kv_heads)
        batch, kv_len = DEFAULT_SIZES[self.sharing.kind]
        table = shape.table_tokens or shape.table_width * shape.page_size
        return (
            (self.kernel, False),
            (self.sharing.word, False),
            (self.placement.word, self.placement == CONTIGUOUS),
            (f"p{shape.page_size}", False),
            (f"b{shape.batch}", shape.batch == batch),
            (f"l{shape.kv_len}", shape.kv_len == kv_len),
            (f"r{shape.ragged_percent}", shape.ragged_percent == 0),
            (f"s{shape.seed}", shape.seed == 0),
            (f"w{table}", shape.table_tokens is None),
            (f"h{heads[0]}x{heads[1]}", heads == DEFAULT_HEADS),
            (f"d{shape.head_dim}", shape.head_dim == DEFAULT_HEAD_DIM),
            (shape.dtype, shape.dtype == DEFAULT_DTYPE),
            (shape.kv_layout.lower(), shape.kv_layout == "NHD"),
            (f"x{shape.planted_loads}", shape.planted_loads == 0),
            (f"y{shape.planted_ns}", shape.planted_ns == 0),
        )

    @classmethod
    def parse(cls, name: str) -> Cell:
        """Read a name, its words in any order. CellNameError for a name that is not a cell's."""
        return cls.of_words(read_words(name), name)

    @classmethod
    def of_words(cls, found: dict[str, object], name: str) -> Cell:
        """The cell of words that `read_words` found in `name`. CellNameError as from `parse`."""
        for axis, example in MUST.items():
            if axis not in found:
                missing = f"missing {axis.replace('_', ' ')}, such as {example}"
                raise CellNameError(f"{brief(name)}: {missing}")
        try:
            return cls._build(found)
        except SizeError as error:
            raise CellNameError(f"{brief(name)}: {error}") from error

    @classmethod
    def _build(cls, found: dict[str, object]) -> Cell:
        axes = dict(found)
        kernel, sharing = axes.pop("kernel"), axes.pop("sharing")
        assert isinstance(kernel, str)
        assert isinstance(sharing, Sharing)
        placement = axes.pop("placement", CONTIGUOUS)
        assert isinstance(placement, Placement)
        batch, kv_len = DEFAULT_SIZES[sharing.kind]
        heads = axes.pop("heads", DEFAULT_HEADS)
        assert isinstance(heads, tuple)
        q_heads, kv_heads = heads
        sizes: dict[str, Any] = {
            "batch": batch,
            "kv_len": kv_len,
            "q_heads": q_heads,
            "kv_heads": kv_heads,
        } | axes
        return cls(kernel, sharing, Shape(**sizes), placement)

    def axes(self) -> Axes:
        """Every axis, defaults included."""
        shape = self.shape
        return Axes(
            kernel=self.kernel,
            sharing=self.sharing.word,
            placement=self.placement.word,
            page_size=shape.page_size,
            batch=shape.batch,
            kv_len=shape.kv_len,
            ragged_percent=shape.ragged_percent,
            seed=shape.seed,
            table_tokens=shape.table_tokens or shape.table_width * shape.page_size,
            q_heads=shape.q_heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            dtype=shape.dtype,
            kv_layout=shape.kv_layout,
            planted_loads=shape.planted_loads,
            planted_ns=shape.planted_ns,
        )


def read_words(name: str) -> dict[str, object]:
    """Each word's axis and value. CellNameError for an unknown word or an axis given twice."""
    found: dict[str, object] = {}
    for word in name.split("_"):
        axis, value = _read_word(word, name)
        if axis in found:
            again = f"{word} gives {axis.replace('_', ' ')} a second time"
            raise CellNameError(f"{brief(name)}: {again}")
        found[axis] = value
    return found


def _read_word(word: str, name: str) -> tuple[str, object]:
    for axis, (pattern, read) in WORDS.items():
        match = pattern.fullmatch(word)
        if match and len(word) <= MOST_WORD:  # int() limits its digits
            try:
                return axis, read(match[1])
            except SizeError as error:
                raise CellNameError(f"{brief(name)}: {error}") from error
    if is_kernel(word):
        return "kernel", word
    leads = word == name.partition("_")[0]
    where = f"{brief(name)}: " if brief(word) == word else ""
    if leads and is_name(word) and not _near(word, LIKELY):
        raise CellNameError(
            f"{where}no kernel {brief(word)} here: name its file with --kernel FILE.py, or "
            f"install its package; there are {', '.join(kernel_names())}"
        )
    unknown = f"unknown word {brief(word) or '(empty)'}"
    raise CellNameError(f"{where}{unknown}{_nearest(word, leads)}")


def _near(word: str, likeness: float) -> list[str]:
    if len(word) > MOST_WORD:
        return []
    known = (*kernel_names(), *EXAMPLES)
    return get_close_matches(word.lower(), known, n=1, cutoff=likeness)


def _nearest(word: str, leads: bool) -> str:
    """What may have been meant; a leading word may also be a kernel that is not here."""
    near = _near(word, REMOTE)
    if not near:
        return f"; examples of words are {', '.join(EXAMPLES[:8])}"
    own = " (a kernel of your own needs --kernel FILE.py)" if leads and is_kernel(near[0]) else ""
    return f"; did you mean {near[0]}?{own}"


def matches(cell: Cell, words: frozenset[str]) -> bool:
    """Whether a cell has every word of a filter, defaults counted as words too."""
    return words <= {word for word, _ in cell.words()}


def moving_axes(cells: Sequence[Cell]) -> list[str]:
    """Axes that differ; the table's width is left out where it only follows the context."""
    axes = [asdict(cell.axes()) for cell in cells]
    found = [axis for axis in axes[0] if any(each[axis] != axes[0][axis] for each in axes)]
    return [axis for axis in found if axis != "table_tokens"] or found
