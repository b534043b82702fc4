"""The oracle: which requests are compared, and the right answers, made without the page table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pagebench.kernels.reference import attend_each
from pagebench.layouts.counter_hash import hash_numpy
from pagebench.layouts.tensors import Batch, request_kv

if TYPE_CHECKING:
    from torch import Tensor

CHECKED_TOKENS = {"cuda": 2**20, "cpu": 2**16}  # tokens whose requests the oracle recomputes
SHORTER_STREAM, DRAW_STREAM = 7, 11
# A zero query weighs all tokens alike. A token counts as not read where its weight is off by
# HALF_A_WEIGHT, and by DEVIATIONS of what rounding alone would show.
HALF_A_WEIGHT, DEVIATIONS = 0.5, 6.5


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A query, q_dtype [batch, q_heads, head_dim], and lengths where they are not the cell's."""

    name: str
    q: Tensor
    lengths: np.ndarray | None = None  # int64 [batch]


@dataclass(slots=True)
class Answers:
    """Right answers of the compared requests, worked out once and kept."""

    batch: Batch
    requests: Sequence[int]
    expected: dict[str, Tensor] = field(default_factory=dict)  # float32 [requests, q_heads, dim]
    index: Tensor = field(init=False)
    every: Tensor = field(init=False)  # the numbers of all requests

    def __post_init__(self) -> None:
        import torch

        self.index = torch.tensor(self.requests, device=self.batch.device)
        self.every = torch.arange(self.batch.shape.batch, device=self.batch.device)

    def work_out(self, questions: Sequence[Question], zero: Tensor) -> str | None:
        """Fill `expected` once, for all questions together: making a request's tokens takes longer
        than all else.

        `zero` is the call's answer to the question of that name; returns what is wrong with its
        weights.
        """
        import torch

        if self.expected:
            return None
        rows: list[Tensor] = []
        wrong, at_zero = None, [each.name for each in questions].index("zero")
        asked = torch.stack([each.q for each in questions], 1)  # [batch, questions, q_heads, dim]
        for at, request in enumerate(self.requests):
            k, v = (each.float() for each in request_kv(self.batch.table, request, self._device))
            rows.append(attend_each(asked[request], k, v, self._ends(questions, request)))
            if wrong is None:
                wrong = _misweighed(request, zero[at] - rows[-1][at_zero], v)
        found = torch.stack(rows, 1).to(asked.dtype).float()
        self.expected = {each.name: found[at] for at, each in enumerate(questions)}
        return wrong

    def _ends(self, questions: Sequence[Question], request: int) -> list[int]:
        """How many tokens each question asks of a request."""
        own = self.batch.table.lengths
        return [int((own if each.lengths is None else each.lengths)[request]) for each in questions]

    def place(self, found: Tensor) -> str:
        """Where in errors [requests, q_heads] the largest is."""
        row, head = np.unravel_index(int(found.argmax()), found.shape)
        return f" of request {self.requests[int(row)]}, head {head},"

    @property
    def _device(self) -> object:
        return self.batch.device


def errors(out: Tensor, expected: Tensor, sure: Tensor | None = None) -> Tensor:
    """|out - expected| / |expected| of each head, float32 [requests, q_heads]; not finite is inf.

    Where `sure` is false the error is 0.
    """
    found: Tensor = (out - expected).norm(dim=-1) / expected.norm(dim=-1).clamp(min=1e-30)
    found = found.nan_to_num(nan=float("inf"), posinf=float("inf"))
    return found if sure is None else found.masked_fill(~sure, 0.0)


def mixed(one: Tensor, other: Tensor, axis: int, requests: Tensor) -> Tensor:
    """Of [requests, q_heads, head_dim] every second request (axis 0) or head (axis 1) of each;
    `requests` are the rows' numbers."""
    import torch

    heads = torch.arange(one.shape[1], device=one.device)
    numbers = requests[:, None, None] if axis == 0 else heads[None, :, None]
    return torch.where(numbers % 2 == 0, one, other)


def borrowed(lengths: np.ndarray, compared: Sequence[int]) -> np.ndarray:  # int64 [batch]
    """For each request the place in `compared` of one that is as long, or else the longest that is
    shorter; in turn where several are. The shortest of all is compared, so there is one."""
    order = np.argsort(lengths[list(compared)], kind="stable")
    known = lengths[list(compared)][order]
    end = np.searchsorted(known, lengths, side="right")
    begin = np.searchsorted(known, known[end - 1], side="left")
    found: np.ndarray = order[begin + np.arange(len(lengths)) % (end - begin)]
    return found


def _misweighed(request: int, difference: Tensor, v: Tensor) -> str | None:
    """The token of a request whose weight under a zero query is off, found by its value.

    `difference` is output less answer, float32 [q_heads, dim]; `v` float32 [length, kv_heads, dim].
    A token that is not read leaves -v / length there. Its projection on v is then -1 / length,
    while rounding leaves |difference| / (|v| sqrt(dim)), since values are independent.
    """
    import torch

    length, kv_heads, dim = v.shape
    grouped = difference.view(kv_heads, -1, dim)
    size = v.norm(dim=2).clamp(min=1e-30)  # [length, kv_heads]
    off = torch.einsum("hgd,lhd->lhg", grouped, v) * (length / size**2)[..., None]
    noise = length * grouped.norm(dim=2) / (size[..., None] * dim**0.5)
    off = off.masked_fill(off.abs() < DEVIATIONS * noise, 0.0)
    worst = off.abs().max()
    if float(worst) <= HALF_A_WEIGHT or length == 1:
        return None
    token, head, group = np.unravel_index(int(off.abs().argmax()), off.shape)
    weight = 1 + float(off[token, head, group])
    at = int(head) * grouped.shape[1] + int(group)
    return f"token {token} of request {request} has {weight:.2g} of its weight in head {at}"


def drawn_requests(batch: Batch) -> list[int]:
    """The requests to compare: those most likely to be wrong, then others in an order by the seed.

    Always the first, the last, the shortest, the longest, and the owners of the pool's lowest and
    highest slots; more until CHECKED_TOKENS are spent.
    """
    budget, lengths = CHECKED_TOKENS[batch.device.type], batch.table.lengths
    always = dict.fromkeys(
        [0, len(lengths) - 1, int(lengths.argmin()), int(lengths.argmax()), *_owners(batch)]
    )
    order = np.argsort(hash_numpy(batch.shape.seed, DRAW_STREAM, np.arange(len(lengths))))
    spent = sum(int(lengths[request]) for request in always)
    drawn = list(always)
    for request in map(int, order):
        if request in always:
            continue
        spent += int(lengths[request])
        if spent > budget:
            break
        drawn.append(request)
    return drawn


def _owners(batch: Batch) -> tuple[int, int]:
    """The requests with a token in the lowest and in the highest used page."""
    table = batch.table
    lowest = table.pages.min(1).values.argmin()  # unused entries are the pool's last page
    used = table.pages.masked_fill(table.pages == table.poison_page, -1)
    return int(lowest), int(used.max(1).values.argmax())


def shorter_lengths(batch: Batch) -> np.ndarray:  # int64 [batch]
    """Lengths from half of each request's up to one token less than its own; at least 1."""
    lengths = batch.table.lengths
    draws = hash_numpy(batch.shape.seed, SHORTER_STREAM, np.arange(len(lengths)))
    less = 1 + (draws % np.maximum(lengths // 2, 1).astype(np.uint64)).astype(np.int64)
    shorter: np.ndarray = np.maximum(lengths - less, 1)
    return shorter
