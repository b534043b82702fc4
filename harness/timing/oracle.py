"""The oracle: which requests are compared, and the right answers, made without the page table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pagebench.harness.timing.scratch import FILL_BYTES, oracle_bytes
from pagebench.kernels.reference import attend_each
from pagebench.layouts.counter_hash import hash_numpy
from pagebench.layouts.tensors import Batch, contexts

if TYPE_CHECKING:
    from torch import Tensor

CHECKED_TOKENS = {"cuda": 2**20, "cpu": 2**16}  # tokens whose requests the oracle recomputes
GROUP_BYTES = {kind: size // 2 for kind, size in FILL_BYTES.items()}  # requests worked out at once
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
        """Fill `expected` once, for all questions together: making the tokens takes longer than
        all else.

        `zero` is the call's answer to the question of that name; returns what is wrong with its
        weights.
        """
        import torch

        if self.expected:
            return None
        asked = torch.stack([each.q for each in questions], 1)[self.index]
        ends = self._ends(questions)
        found = torch.empty(asked.shape, device=asked.device)
        at_zero = [each.name for each in questions].index("zero")
        unread = Unread()
        for rows in self._groups():
            k, v = (_by_head(each) for each in self._contexts(rows))
            found[rows] = attend_each(asked[rows], k, v, ends[rows])
            unread.look(rows, zero[rows] - found[rows, at_zero], v, ends[rows, at_zero])
        found = found.to(asked.dtype).float()
        self.expected = {each.name: found[:, at] for at, each in enumerate(questions)}
        return unread.reason(self.requests)

    def _contexts(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        requests = [self.requests[row] for row in rows]
        return contexts(self.batch.table, requests, self.batch.device)

    def _ends(self, questions: Sequence[Question]) -> Tensor:  # int64 [requests, questions]
        """How many tokens each question asks of a request."""
        import torch

        own = self.batch.table.lengths
        ends = [own if each.lengths is None else each.lengths for each in questions]
        return torch.from_numpy(np.stack(ends, 1)[self.requests]).to(self.batch.device)

    def _groups(self) -> Iterator[list[int]]:
        """Compared requests that are worked out together: of like length, and not too many."""
        lengths = self.batch.table.lengths[self.requests]
        most = GROUP_BYTES[self.batch.device.type] // oracle_bytes(self.batch.shape)
        order = np.argsort(-lengths, kind="stable")
        while len(order):
            count = max(1, int(most // lengths[order[0]]))
            yield order[:count].tolist()
            order = order[count:]

    def place(self, found: Tensor) -> str:
        """Where in errors [requests, q_heads] the largest is."""
        row, head = np.unravel_index(int(found.argmax()), found.shape)
        return f" of request {self.requests[int(row)]}, head {head},"


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


def _by_head(each: Tensor) -> Tensor:
    """float32, each KV head's tokens in a row of memory: so are matrices multiplied as they lie."""
    import torch

    tokens = each.transpose(1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    return tokens.transpose(1, 2)


@dataclass(slots=True)
class Unread:
    """The token whose weight under a zero query is off most, found by its value."""

    _rows: list[int] = field(default_factory=list)
    _worst: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # [rows]: by how much, where
    _dims: list[tuple[int, ...]] = field(default_factory=list)  # of a row's weights

    def look(self, rows: list[int], difference: Tensor, v: Tensor, lengths: Tensor) -> None:
        """Keep the worst token of each of these requests, without waiting for the device."""
        off = _misweighed(difference, v, lengths)
        flat = off.flatten(1)
        at = flat.abs().argmax(1, keepdim=True)
        self._worst.append((flat.gather(1, at)[:, 0], at[:, 0]))
        self._dims += [tuple(off.shape[1:])] * len(rows)
        self._rows += rows

    def reason(self, requests: Sequence[int]) -> str | None:
        """What is wrong; None where each weight is within HALF_A_WEIGHT of its own."""
        import torch

        by, at = (torch.cat(each) for each in zip(*self._worst, strict=True))
        worst = int(by.abs().argmax())
        if abs(off := float(by[worst])) <= HALF_A_WEIGHT:
            return None
        head, token, group = np.unravel_index(int(at[worst]), self._dims[worst])
        where = f"head {int(head) * self._dims[worst][2] + int(group)}"
        request = requests[self._rows[worst]]
        return f"token {token} of request {request} has {1 + off:.2g} of its weight in {where}"


def _misweighed(
    difference: Tensor, v: Tensor, lengths: Tensor
) -> Tensor:  # float32 [requests, kv_heads, length, group]
    """By how much the weight of each token is off, in weights; 0 where rounding explains it.

    `difference` is output less answer, float32 [requests, q_heads, head_dim]; `v` float32
    [requests, length, kv_heads, head_dim]; `lengths` int64 [requests].
    A token that is not read leaves -v / length there. Its projection on v is then -1 / length,
    while rounding leaves |difference| / (|v| sqrt(dim)), since values are independent.
    """
    import torch

    count, longest, kv_heads, dim = v.shape
    grouped = difference.view(count, kv_heads, -1, dim)
    size = v.norm(dim=3).clamp_(min=1e-30).transpose(1, 2)  # [requests, kv_heads, length]
    each = lengths[:, None, None].float()
    off = torch.einsum("rhgd,rlhd->rhlg", grouped, v) * (each / size**2)[..., None]
    noise = grouped.norm(dim=3)[:, :, None] * (each / size)[..., None] / dim**0.5
    off = off.masked_fill_(off.abs() < DEVIATIONS * noise, 0.0)
    exists = torch.arange(longest, device=v.device) < lengths[:, None]
    several = (lengths > 1)[:, None]
    found: Tensor = off.masked_fill_(~(exists & several)[:, None, :, None], 0.0)
    return found


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
