"""Whose ceilings say what binds a call, of which counters, and where it is shown.

The ceilings here are round numbers made up for arithmetic; none was measured.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes import H200
from fakes.made import OLD_CEILINGS, ON_H200, ceilings, evidence, rounds
from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import Contrast
from pagebench.harness.environment import Environment
from pagebench.harness.judging.binds import l2_slice, path_of
from pagebench.harness.judging.verdict import verdict_of
from pagebench.harness.records import store
from pagebench.harness.records.counters import Kernel
from pagebench.harness.records.select import Evidence, State
from pagebench.harness.show import card, machine
from pagebench.harness.show.counters import ceiling_rows
from pagebench.harness.show.sentences import binding_line
from pagebench.harness.timing.interleaved import Interleaved

GPU = "NVIDIA H200"
COLD = State(ON_H200, "cold")


def kernel(instructions: float, *shares: float | None) -> Kernel:
    values = {"instructions": (instructions,) * 2, "l2_slice_pct": shares}
    return Kernel(symbol="k", grid="1", block="1", launch={}, values=values)


def test_a_busy_share_is_the_calls_only_if_its_first_kernel_nearly_is_the_call() -> None:
    found = l2_slice([kernel(96.0, 90.0, 90.0), kernel(4.0, 1.0, 1.0)])
    assert found is not None
    assert (found.value, found.stable) == (90.0, True)
    assert l2_slice([kernel(60.0, 90.0, 90.0), kernel(40.0, 1.0, 1.0)]) is None
    assert l2_slice([kernel(96.0, None, None)]) is None
    unsteady = l2_slice([kernel(96.0, 80.0, 90.0)])
    assert unsteady is not None
    assert not unsteady.stable


def test_a_kernel_without_counted_instructions_has_no_share_of_the_call() -> None:
    lacking = replace(kernel(1.0, 90.0, 90.0), values={"l2_slice_pct": (90.0, 90.0)})
    assert l2_slice([lacking]) is None


# --- whose ceilings ---------------------------------------------------------------------------


def test_the_newest_ceilings_of_that_gpu_are_taken() -> None:
    another = ceilings(environment=Environment(gpu="another"))
    found = Evidence(ceilings=(ceilings(), OLD_CEILINGS, another))
    newest = found.newest_ceilings(ON_H200)
    assert newest is not None
    assert newest.launch_us is None
    assert found.newest_ceilings(Environment(gpu="a third")) is None


def test_the_very_gpus_ceilings_come_before_newer_ones_of_its_model() -> None:
    here, there = (Environment(gpu=GPU, uuid=uuid) for uuid in ("GPU-1", "GPU-2"))
    found = Evidence(
        ceilings=(ceilings(environment=here), replace(OLD_CEILINGS, environment=there))
    )
    of_one, of_other = (found.newest_ceilings(gpu) for gpu in (here, there))
    assert of_one is not None
    assert of_other is not None
    assert (of_one.launch_us is None, of_other.launch_us is None) == (False, True)


@pytest.mark.parametrize(("gpu", "l2"), [("another", "cold"), (GPU, "warm")])
def test_another_gpu_or_state_of_the_cache_is_not_diagnosed(gpu: str, l2: str) -> None:
    counters = evidence().counters[0]
    found = Evidence(ceilings=(ceilings(),))
    assert path_of(counters, COLD, 225.0, found) is not None
    assert path_of(counters, State(Environment(gpu=gpu), l2), 225.0, found) is None
    assert path_of(counters, COLD, 225.0, Evidence()) is None
    assert path_of(counters, COLD, 225.0, Evidence(ceilings=(OLD_CEILINGS,))) is None


# --- where it is shown ------------------------------------------------------------------------


def test_a_card_says_what_binds_where_it_has_time_counters_and_ceilings(tmp_path: Path) -> None:
    store.append(tmp_path / "c.jsonl", ceilings())
    files = [H200 / "pages.jsonl", H200 / "counters.jsonl", tmp_path / "c.jsonl"]
    joined = card.joined("xqa_distinct_p64_b32_l8192", files)
    told = json.loads(json.dumps(machine.card_json(joined)))
    (line,) = [text for text in card.joined_card(joined).splitlines() if "binds" in text]
    assert line == f"  binds     {told['binds']['sentence']}"
    read = told["counters"]["total"]["dram_read_bytes"]["value"]
    assert told["binds"]["terms_us"]["DRAM"] == pytest.approx(read / 4000 / 1e3 - 3)
    assert told["binds"]["binding"] == "DRAM"
    assert card.joined("xqa_distinct_p64_b32_l8192", files[:2]).path is None


def test_a_verdict_takes_the_binding_of_cell_b_from_its_own_times() -> None:
    cells = (Cell.parse("xqa_shared_p16"), Cell.parse("xqa_shared_p64"))
    contrast = Contrast("", "page size", *cells)
    group = Interleaved(cells, 1)
    one = rounds(cells, (900.0, 200.0))
    for _ in range(4):
        group.add(replace(one, rounds=((900.0, 200.0, 210.0, 900.0),)))
    found = Evidence(evidence().counters, (ceilings(),))
    path = verdict_of(contrast, group, "cold", found).path
    assert path is not None
    assert "of the 205.0 measured" in binding_line(path)
    assert verdict_of(contrast, group, "warm", found).path is None
    assert verdict_of(contrast, group, "cold", Evidence(found.counters)).path is None


def test_a_cell_against_itself_takes_the_second_of_its_times() -> None:
    cells = (Cell.parse("xqa_shared_p16"),) * 2
    group = Interleaved(cells, 1)
    for _ in range(4):
        group.add(rounds(cells, (200.0, 205.0)))
    found = Evidence(evidence().counters, (ceilings(),))
    path = verdict_of(Contrast("", "nothing", *cells), group, "cold", found).path
    assert path is not None
    assert path.time_us == 205.0


def test_the_table_of_ceilings_shows_every_one() -> None:
    rows = ceiling_rows(ceilings())
    names = [row[0] for row in rows]
    assert names == [
        "launch_us, first",
        "launch_us, further",
        "l2_read_gbps",
        "issue_ginst",
        "fma_gflops",
        "matrix_gflops",
        "dram_read_gbps of 1 MB",
    ]
    assert rows[5][1:] == ("409,600", "warps per SM: 8 409,600", "False")
