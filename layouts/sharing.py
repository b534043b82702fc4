"""Sharing: which stored pages each request reads.

Stored pages belong to streams. Stream 0 is what all requests have in common, stream 1 + r is what
only request r reads. Any of them may be empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagebench.layouts.shape import Shape, SizeError

if TYPE_CHECKING:
    import numpy as np

PREFIX_GRANULE = 128  # tokens; every common page size divides it


@dataclass(frozen=True, slots=True)
class Sharing:
    """`distinct` (each request its own tokens), `shared` (all the same) or `prefix`.

    With `prefix`, `percent` of the shortest request is common to all. SizeError for other than 1 to
    99 per cent.
    """

    kind: str
    percent: int | None = None

    def __post_init__(self) -> None:
        if self.kind == "prefix" and not 1 <= (self.percent or 0) <= 99:
            raise SizeError(f"prefix{self.percent}: use prefix1 to prefix99")

    @property
    def word(self) -> str:
        return self.kind if self.percent is None else f"{self.kind}{self.percent}"


@dataclass(frozen=True, slots=True, eq=False)
class Streams:
    """The stored tokens by stream; each is stored once."""

    shared_tokens: int
    private_tokens: np.ndarray  # int64 [batch]
    page_size: int

    @property
    def tokens(self) -> np.ndarray:  # int64 [1 + batch]
        """Tokens of each stream."""
        import numpy as np

        return np.concatenate([[self.shared_tokens], self.private_tokens]).astype(np.int64)

    @property
    def pages(self) -> np.ndarray:  # int64 [1 + batch]
        """Stored pages of each stream."""
        pages: np.ndarray = -(-self.tokens // self.page_size)
        return pages

    @property
    def first_page(self) -> np.ndarray:  # int64 [1 + batch]
        """Index of each stream's first stored page."""
        first: np.ndarray = self.pages.cumsum() - self.pages
        return first

    @property
    def shared_pages(self) -> int:
        return int(self.pages[0])

    @property
    def stored_pages(self) -> int:
        return int(self.pages.sum())


def share(sharing: Sharing, shape: Shape) -> Streams:
    """Streams of `shape`; a prefix is that share of the shortest request, in runs of 128 tokens.

    SizeError where there is no such prefix.
    """
    lengths = shape.lengths()
    if sharing.kind == "distinct":
        return Streams(0, lengths, shape.page_size)
    if sharing.kind == "shared":
        return Streams(int(lengths.max()), 0 * lengths, shape.page_size)
    common = prefix_tokens(sharing, shape)
    return Streams(common, lengths - common, shape.page_size)


def prefix_tokens(sharing: Sharing, shape: Shape) -> int:
    """Tokens of a prefix; SizeError where it is shorter than 128 tokens or ends inside a page."""
    shortest = int(shape.lengths().min()) if shape.ragged_percent else shape.kv_len
    wanted = shortest * (sharing.percent or 0) / 100
    most = (shortest - 1) // PREFIX_GRANULE * PREFIX_GRANULE  # every tail keeps a token
    common = min(round(wanted / PREFIX_GRANULE) * PREFIX_GRANULE, most)
    if common == 0:
        raise SizeError(
            f"{sharing.word} of {shortest} tokens is less than one run of {PREFIX_GRANULE}; "
            "use distinct, a longer context or a larger share"
        )
    if common % shape.page_size:
        raise SizeError(
            f"a prefix of {common} tokens is not a whole number of pages of {shape.page_size}; "
            f"use a page size that divides {PREFIX_GRANULE}"
        )
    return common
