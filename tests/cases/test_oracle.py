"""Wrong kernels that 3acd176 timed as if they were right, as plug-ins of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pagebench.harness.cell import Cell
from pagebench.harness.progress import silent
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.measure import measure_cell
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.session import Session
from pagebench.kernels import registry
from pagebench.kernels.adapter import DEFAULT, Call, Tolerance, tolerance_of
from pagebench.kernels.device import CPU
from pagebench.layouts.tensors import Batch

SEEDS = (1, 2, 3)
QUICK = Options("run", "wall", "cold", 0.05)


@dataclass
class Seen:
    """What a bug is given for one request: its query, tokens and place in the plan's life."""

    q: Tensor  # [q_heads, dim]
    k: Tensor  # float32 [length, kv_heads, dim]
    v: Tensor
    call: int
    request: int
    slots: Tensor  # int64 [length]
    pools: tuple[Tensor, Tensor]  # [slots, kv_heads, dim]
    memory: dict[str, Any]


def attention(seen: Seen, weigh: Callable[[Tensor], Tensor] = lambda scores: scores) -> Tensor:
    """[q_heads, dim]; `weigh` changes scores [kv_heads, group, length]."""
    kv_heads, dim = seen.k.shape[1:]
    q = seen.q.float().view(kv_heads, -1, dim)
    scores = weigh(torch.einsum("hgd,lhd->hgl", q, seen.k) * dim**-0.5)
    return torch.einsum("hgl,lhd->hgd", scores.softmax(-1), seen.v).reshape(-1, dim)


Bug = Callable[[Seen], "Tensor | None"]


def loses(count: int, at: int) -> Bug:
    """`count` tokens are not read, from the middle or (negative) the end."""

    def bug(seen: Seen) -> Tensor:
        length = len(seen.k)
        gone = range(length)[at % length :][:count] if length > count else ()
        kept = [token for token in range(length) if token not in gone]
        return attention(replace(seen, k=seen.k[kept], v=seen.v[kept]))

    return bug


def replaces_a_token(seen: Seen) -> Tensor:
    k, v = seen.k.clone(), seen.v.clone()
    k[len(k) // 3], v[len(v) // 3] = k[0], v[0]
    return attention(replace(seen, k=k, v=v))


def loses_a_token_in_one_head(seen: Seen) -> Tensor:
    out = attention(seen)
    if len(seen.k) > 2:
        short = attention(replace(seen, k=seen.k[:-2], v=seen.v[:-2]))
        out[3] = short[3]
    return out


def scales_a_head(seen: Seen) -> Tensor:
    out = attention(seen)
    out[1] *= 1.03
    return out


def swaps_heads(seen: Seen) -> Tensor:
    return attention(seen)[[1, 0, *range(2, len(seen.q))]]


def has_padding_lanes(tile: int) -> Bug:
    """Zero-filled lanes up to the tile's edge join the denominator."""

    def bug(seen: Seen) -> Tensor:
        dim = seen.k.shape[2]
        lanes = -len(seen.k) % tile
        padded = [torch.cat([x, torch.zeros(lanes, *x.shape[1:])]) for x in (seen.k, seen.v)]
        assert padded[0].shape[2] == dim
        return attention(replace(seen, k=padded[0], v=padded[1]))

    return bug


def reads_one_past_its_end(seen: Seen) -> Tensor:
    past = seen.slots[-1:] + 1
    past = past.clamp(max=len(seen.pools[0]) - 1)
    k, v = (
        torch.cat([x, pool[past].float()])
        for x, pool in zip((seen.k, seen.v), seen.pools, strict=True)
    )
    return attention(replace(seen, k=k, v=v))


def remembers(seen: Seen) -> Tensor:
    answers = seen.memory.setdefault("answers", {})
    return answers.setdefault(seen.request, attention(seen))


def answers_every_third_call(seen: Seen) -> Tensor | None:
    return None if seen.call % 3 == 2 else attention(seen)


def lacks_a_request(seen: Seen) -> Tensor | None:
    return None if seen.request == 1 else attention(seen)


def answers_the_call_before(seen: Seen) -> Tensor:
    last = seen.memory.get(seen.request)
    seen.memory[seen.request] = attention(seen)
    return seen.memory[seen.request] if last is None else last


def leaves_off_the_scale(seen: Seen) -> Tensor:
    return attention(seen, lambda scores: scores * 1.01)


def caps_its_scores(seen: Seen) -> Tensor:
    return attention(seen, lambda scores: 5 * torch.tanh(scores / 5))


def writes_into_the_pool(seen: Seen) -> Tensor:
    seen.pools[1][seen.slots[0]] *= 1.0 if seen.call < 40 else 1.5
    return attention(seen)


def loses_the_first_of_each_tile(seen: Seen) -> Tensor:
    kept = [token for token in range(len(seen.k)) if token % 64 or token == 0]
    return attention(replace(seen, k=seen.k[kept], v=seen.v[kept]))


def weighs_a_token_twice(seen: Seen) -> Tensor:
    k, v = torch.cat([seen.k, seen.k[-1:]]), torch.cat([seen.v, seen.v[-1:]])
    return attention(replace(seen, k=k, v=v)) if len(k) > 2 else attention(seen)


def goes_wrong_late(seen: Seen) -> Tensor:
    return attention(seen) * (1.2 if seen.call > 45 else 1.0)


BUGS: dict[str, Bug] = {
    "the last token": loses(1, -1),
    "the first token": loses(1, 0),
    "a page": loses(16, 160),
    "two tokens": loses(2, 700),
    "one token in the middle": loses(1, 517),
    "a token replaced": replaces_a_token,
    "the last two of one head": loses_a_token_in_one_head,
    "a scaled head": scales_a_head,
    "two heads swapped": swaps_heads,
    "padding to 64": has_padding_lanes(64),
    "padding to 256": has_padding_lanes(256),
    "padding to 16": has_padding_lanes(16),
    "one past the end": reads_one_past_its_end,
    "an answer remembered": remembers,
    "every third call": answers_every_third_call,
    "a request not written": lacks_a_request,
    "the call before": answers_the_call_before,
    "a wrong scale": leaves_off_the_scale,
    "a soft cap": caps_its_scores,
    "a pool written": writes_into_the_pool,
    "the first of a tile": loses_the_first_of_each_tile,
    "the last token twice": weighs_a_token_twice,
    "wrong after a while": goes_wrong_late,
}


def reversed_order(seen: Seen) -> Tensor:
    """Innocent: the same tokens from last to first."""
    return attention(replace(seen, k=seen.k.flip(0), v=seen.v.flip(0)))


def in_bf16(seen: Seen) -> Tensor:
    """Innocent: scores, softmax and products in bf16, as a plain torch kernel has them."""
    k, v = seen.k.bfloat16().transpose(0, 1), seen.v.bfloat16().transpose(0, 1)
    q = seen.q.bfloat16().view(k.shape[0], -1, k.shape[2])
    return ((q @ k.mT * k.shape[2] ** -0.5).softmax(-1) @ v).flatten(0, 1)


@dataclass
class Planted:
    """A bug as an adapter."""

    bug: Bug
    name: str = "planted"
    has_plan: bool = False
    tolerance: dict[str, Tolerance] = field(default_factory=dict)

    def lowering(self, shape: Any) -> str:
        return "token_indices"

    def refuses(self, shape: Any, device: Any) -> None:
        return None

    def workspace_bytes(self, shape: Any) -> int:
        return 0

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        assert batch.q is not None
        out, plan, calls = torch.empty_like(batch.q), [batch], [-1]
        memory: dict[str, Any] = {}

        def run() -> None:
            calls[0] += 1
            lowered = plan[0].lowered
            assert batch.q is not None
            assert batch.k is not None
            assert batch.v is not None
            assert lowered.indptr is not None
            assert lowered.indices is not None
            pools, ends = (batch.k, batch.v), lowered.indptr.tolist()
            for request in range(len(out)):
                slots = lowered.indices[ends[request] : ends[request + 1]].long()
                k, v = (pool[slots].float() for pool in pools)
                seen = Seen(batch.q[request], k, v, calls[0], request, slots, pools, memory)
                if (got := self.bug(seen)) is not None:
                    out[request] = got

        return Call(run, out, lambda newer: plan.__setitem__(0, newer), {"kernel": "planted"})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[Bug, str], Timing]:
    session = Session(CPU)

    def measure(bug: Bug, cell: str) -> Timing:
        monkeypatch.setitem(registry._from_files, "planted", Planted(bug))
        return measure_cell(Cell.parse(cell), QUICK, session, silent)

    return measure


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bug", BUGS)
def test_no_wrong_kernel_gets_a_time(
    bug: str, seed: int, measured: Callable[[Bug, str], Timing]
) -> None:
    """3acd176 compared a random query within 1 % over all heads: most of these had a time."""
    record = measured(BUGS[bug], f"planted_distinct_p1_b2_l1013_h8x4_d64_s{seed}")
    assert record.status in ("wrong", "poisoned"), bug
    assert record.samples is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("innocent", [attention, reversed_order, in_bf16])
@pytest.mark.parametrize("size", ["b2_l1013_h8x4_d64", "b3_l64", "b1_l1", "b2_l300_h4x1_d32"])
def test_a_right_kernel_keeps_its_time(
    innocent: Bug, size: str, seed: int, measured: Callable[[Bug, str], Timing]
) -> None:
    record = measured(innocent, f"planted_distinct_p1_{size}_s{seed}")
    assert record.status == "measured", record.reason
    assert record.check is not None
    assert record.check.canaries is True


def test_one_token_of_many_is_found_by_its_weight_and_named(
    measured: Callable[[Bug, str], Timing],
) -> None:
    """3acd176 let one token of 32,768 pass. Its error is below the tolerance; its weight is 0."""
    record = measured(loses(1, 20_001), "planted_distinct_p1_b1_l65536_h2x1_d128")
    assert record.status == "wrong"
    assert "token 20001 of request 0 has" in str(record.reason)


def test_a_plug_in_may_be_stricter_and_never_laxer_than_the_default() -> None:
    lax, strict = Tolerance(0.5, 0.5), Tolerance(0.001, 0.001)
    assert tolerance_of(Planted(attention), "bf16") == DEFAULT
    assert tolerance_of(Planted(attention, tolerance={"bf16": lax}), "bf16") == DEFAULT
    assert tolerance_of(Planted(attention, tolerance={"bf16": strict}), "bf16") == strict
    assert tolerance_of(registry.find_kernel("xqa"), "e4m3").random > DEFAULT.random
