"""Kernels that are wrong by a part of the query, by a request's number or at extreme scores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from pagebench.harness.cell import Cell
from pagebench.harness.progress import silent
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.measure import measure_cell
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.session import Session
from pagebench.kernels import registry
from pagebench.kernels.device import CPU
from pagebench.kernels.probes.faulty import Planted
from pagebench.kernels.probes.seen import Bug, Seen, attention

SMALL = "distinct_p16_b3_l1013_h8x4_d64"
WIDE = "distinct_p16_b48_l3000_h4x2_d64"  # more tokens than are compared
Measure = Callable[..., Timing]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measure:
    session = Session(CPU)

    def measure(bug: Bug, cell: str, l2: str = "cold") -> Timing:
        monkeypatch.setitem(registry._from_files, "own", Planted("own", bug))
        options = Options("run", "wall", l2, 0.05)
        return measure_cell(Cell.parse(f"own_{cell}"), options, session, silent)

    return measure


def remembers_by(part: Callable[[Tensor], Tensor]) -> Bug:
    """An answer is kept for ever, by a part of the first request's query and the length."""

    def bug(seen: Seen) -> Tensor:
        if seen.request == 0:
            seen.memory["key"] = tuple(part(seen.q.float()).flatten().tolist())
        key = repr((seen.memory["key"], seen.request, len(seen.k)))
        found: Tensor = seen.memory.setdefault(key, attention(seen))
        return found

    return bug


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("part", [lambda q: q[0, :1], lambda q: q[0], lambda q: q])
def test_a_part_of_the_query_is_not_the_query(
    part: Callable[[Tensor], Tensor], seed: int, measured: Measure
) -> None:
    """ad8b535 measured each of them."""
    record = measured(remembers_by(part), f"{SMALL}_s{seed}")
    assert (record.status, record.check and record.check.failed) == ("wrong", "random")
    assert "with two queries mixed" in str(record.reason)


@pytest.mark.parametrize("l2", ["cold", "warm"])
def test_no_query_that_is_timed_was_asked_before(l2: str, measured: Measure) -> None:
    """ad8b535 asked the same two again and again: answers by the query were all remembered."""
    asked: list[bytes] = []

    def notes(seen: Seen) -> Tensor:
        if seen.request == 0:
            asked.append(seen.q.float().numpy().tobytes())
        return attention(seen)

    record = measured(notes, "distinct_p16_b2_l100_h2x1_d64", l2)
    assert record.status == "measured", record.reason
    assert record.samples is not None
    assert record.check is not None
    timed = len(record.samples.time_us)
    assert len(set(asked)) > timed * (2 if l2 == "warm" else 1)
    assert record.check.error_timed is not None
    assert record.check.error_timed < 0.002


@pytest.mark.parametrize("first", [-1e30, -100.0, 0.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_maximum_that_starts_too_high_is_found(
    first: float, seed: int, measured: Measure
) -> None:
    """ad8b535 measured a softmax whose running maximum starts with 0, or -100."""

    def bug(seen: Seen) -> Tensor:
        kv_heads, dim = seen.k.shape[1:]
        q = seen.q.float().view(kv_heads, -1, dim)
        scores = (q @ seen.k.permute(1, 2, 0)) * dim**-0.5
        weights = (scores - scores.max(-1, keepdim=True).values.clamp(min=first)).exp()
        shares = weights / weights.sum(-1, keepdim=True)
        found: Tensor = (shares @ seen.v.transpose(0, 1)).reshape(-1, dim)
        return found

    record = measured(bug, f"{SMALL}_s{seed}")
    if first == -1e30:
        assert record.status == "measured", record.reason
    else:
        assert (record.status, record.check and record.check.failed) == ("wrong", "one token")
        assert "a number overflowed" in str(record.reason)


@pytest.mark.parametrize("request_at", [11, 17, 30, 41])
def test_a_request_that_is_not_compared_answers_in_another_ones_place(
    request_at: int, measured: Measure
) -> None:
    """3acd176 asked nothing of a request that is not compared. Each is asked in another's place."""

    def bug(seen: Seen) -> Tensor:
        faulty = seen.request == request_at
        return attention(seen, lambda scores: scores * (1.1 if faulty else 1.0))

    record = measured(bug, WIDE)
    assert record.status == "wrong"
    assert record.check is not None
    assert record.check.failed in ("random", "lengths")


@pytest.mark.parametrize("cell", [WIDE, "distinct_p16_b40_l2500_h4x2_d64_r40_s1"])
def test_a_right_kernel_is_asked_for_its_own_contexts_again(cell: str, measured: Measure) -> None:
    record = measured(attention, cell)
    assert record.status == "measured", record.reason
    assert record.check is not None
    assert record.check.requests < record.check.of_requests
