"""The Triton kernels against the reference, under Triton's interpreter: no GPU is needed.

Triton reads TRITON_INTERPRET when it is first imported, and other tests of the same pytest
process compile real kernels. So this file runs itself once, in a process of its own, for all
cases; each test then asserts its own line of what came back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from unittest import mock

import pytest
from packaging.version import Version

from pagebench.kernels.device import CPU, Device
from pagebench.kernels.triton.adapter import TRITONROW, TRITONTILE, TRITONTOKEN, TritonDecode
from pagebench.kernels.triton.launch import MAX_SPLITS, Tuning
from pagebench.layouts.placement import Placement
from pagebench.layouts.shape import Shape
from pagebench.layouts.sharing import Sharing, share

SCATTER = Placement("scatter")
DISTINCT = Sharing("distinct")
# One unit in the last place of q's dtype at values in [1, 2), which outputs stay below: the
# interpreter truncates where a GPU rounds. A wrong token would show as 0.1, a dead one as NaN.
TOLERANCE = {"bf16": 2**-7, "fp16": 2**-10, "e4m3": 2**-7}


@dataclass(frozen=True)
class Case:
    """A tile is 16 tokens and a split 2 tiles unless said, so that 100 tokens make 4 splits."""

    mode: str
    page_size: int
    kv_len: int = 100
    dtype: str = "bf16"
    kv_layout: str = "NHD"
    ragged_percent: int = 60
    prefix: int = 0
    kv_heads: int = 2
    q_heads: int = 4
    head_dim: int = 64
    tiles: int = 2
    shortened: tuple[int, ...] = ()
    planted_loads: int = 0

    @property
    def name(self) -> str:
        axes = ((axis.name, getattr(self, axis.name), axis.default) for axis in fields(self)[2:])
        changed = (f"{name}={value}" for name, value, default in axes if value != default)
        return "-".join((self.mode, f"p{self.page_size}", *changed))

    @property
    def shape(self) -> Shape:
        return Shape(
            batch=3,
            kv_len=self.kv_len,
            page_size=self.page_size,
            q_heads=self.q_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
            kv_layout=self.kv_layout,
            ragged_percent=self.ragged_percent,
            planted_loads=self.planted_loads,
        )

    @property
    def adapter(self) -> TritonDecode:
        tuning = Tuning(block_n=16, least_tiles=self.tiles, programs=10**6)
        return TritonDecode(f"triton{self.mode}", self.mode, tuning)


PLANTED = [Case(m, p, planted_loads=3) for m, p in (("token", 1), ("row", 16), ("tile", 4))]
PAGED = [Case(mode, page) for mode in ("row", "tile") for page in (1, 4, 16, 64, 128)]
CASES = (
    Case("token", 1),
    *PAGED,
    *(Case(mode, 16, kv_layout="HND") for mode in ("row", "tile")),
    *(
        Case(mode, page, dtype=dtype)
        for mode, page in (("token", 1), ("row", 16), ("tile", 4))
        for dtype in ("fp16", "e4m3")
    ),
    *(
        Case(mode, page, kv_len=200, prefix=80, ragged_percent=10)
        for mode, page in (("token", 1), ("row", 64), ("tile", 64))
    ),
    # An even number of tiles and of splits: nothing is masked.
    *(Case(mode, page, kv_len=64, ragged_percent=0) for mode, page in (("token", 1), ("tile", 8))),
    # One split: stage 1 writes the output itself.
    *(Case(mode, page, tiles=7) for mode, page in (("token", 1), ("row", 16), ("tile", 16))),
    # 24 query heads a KV head: more than tl.dot's least tile, and no power of two.
    Case("row", 16, q_heads=24, kv_heads=1),
    Case("tile", 16, q_heads=3, kv_heads=3, head_dim=128),
    # Replanned: the first request loses splits, the second all but one token.
    *(
        Case(mode, page, shortened=(33, 1, 40))
        for mode, page in (("token", 1), ("row", 16), ("tile", 16))
    ),
    *PLANTED,
    # Replanned to a request of fewer entries than are planted.
    *(Case(m, p, planted_loads=3, shortened=(33, 40, 1)) for m, p in (("token", 1), ("tile", 16))),
)


def run_case(case: Case) -> float:
    """Worst error of one planned call, after replanning where the case says so."""
    import numpy as np
    import torch

    from pagebench.kernels.reference import attend
    from pagebench.layouts.table import page_table
    from pagebench.layouts.tensors import materialise, request_kv

    adapter, shape = case.adapter, case.shape
    sharing = Sharing("prefix", case.prefix) if case.prefix else DISTINCT
    table = page_table(shape, share(sharing, shape), SCATTER, "cpu")
    batch = materialise(table, adapter.lowering(shape))
    call = adapter.plan(batch, graph=False)
    assert call.out is not None
    call.run()
    if case.shortened:
        batch = batch.with_lengths(np.minimum(table.lengths, case.shortened))
        call.replan(batch)
        call.out.fill_(float("nan"))
        call.run()
    assert batch.q is not None
    right = [
        attend(q, *request_kv(batch.table, request, "cpu")) for request, q in enumerate(batch.q)
    ]
    return float((call.out.float() - torch.stack(right)).abs().max())


def planted_reads(case: Case) -> list[list[int]]:
    """[request, which of its own entries] of every volatile load of a call, in order.

    Pages of a distinct cell are each of one request, so that an entry's value says where it lies.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    from pagebench.layouts.table import page_table
    from pagebench.layouts.tensors import materialise

    adapter, shape = case.adapter, case.shape
    table = page_table(shape, share(DISTINCT, shape), SCATTER, "cpu")
    rows = table.pages.tolist()
    where = {
        page: [request, entry]
        for request, length in enumerate(table.lengths.tolist())
        for entry, page in enumerate(rows[request][: shape.pages(length)])
    }
    found: list[list[int]] = []
    load = InterpreterBuilder.create_load

    def recorded(builder: object, pointer: object, *options: object) -> object:
        loaded = load(builder, pointer, *options)
        if options[-1]:  # is_volatile
            found.append(where[int(loaded.data.item())])
        return loaded

    call = adapter.plan(materialise(table, adapter.lowering(shape)), graph=False)
    with mock.patch.object(InterpreterBuilder, "create_load", recorded):
        call.run()
    return found


def main() -> None:
    work: list[tuple[str, Callable[[], object]]] = [
        *((case.name, partial(run_case, case)) for case in CASES),
        *((f"reads of {case.name}", partial(planted_reads, case)) for case in PLANTED),
    ]
    for name, do in work:
        try:
            outcome = do()
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps({"case": name, "outcome": outcome}) + "\n")


def _no_interpreter() -> str | None:
    if find_spec("triton") is None:
        return "triton is not installed"
    triton, numpy = (Version(version(package)) for package in ("triton", "numpy"))
    if triton < Version("3.7") and numpy >= Version("2.4"):
        return f"the interpreter of triton {triton} fails with numpy {numpy}: use numpy<2.4"
    return None


@pytest.fixture(scope="module")
def outcomes() -> dict[str, object]:
    """By case: the worst error, or a failure's text."""
    if reason := _no_interpreter():
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, __file__],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = (json.loads(line) for line in done.stdout.splitlines())
    return {line["case"]: line["outcome"] for line in lines}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_reference(case: Case, outcomes: dict[str, object]) -> None:
    outcome = outcomes[case.name]
    assert isinstance(outcome, float), outcome
    assert outcome <= TOLERANCE[case.dtype]  # false for NaN too


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.name)
def test_planted_loads_are_neighbours_in_their_own_request(
    case: Case, outcomes: dict[str, object]
) -> None:
    reads = outcomes[f"reads of {case.name}"]
    assert isinstance(reads, list), reads
    tiles = Counter[int]()
    for begin in range(0, len(reads), case.planted_loads):
        requests, entries = zip(*reads[begin : begin + case.planted_loads], strict=True)
        assert len(set(requests)) == 1
        assert entries == tuple(range(entries[0], entries[0] + case.planted_loads))
        tiles[requests[0]] += 1
    lengths = case.shape.lengths().tolist()
    assert tiles == {r: case.kv_heads * -(-length // 16) for r, length in enumerate(lengths)}


H200 = Device("cuda", "NVIDIA H200", capability=(9, 0))
A100 = Device("cuda", "NVIDIA A100", capability=(8, 0))


@pytest.mark.parametrize(
    ("adapter", "shape", "device", "said"),
    [
        (TRITONTOKEN, Shape(8, 4096, 16), H200, "tritontoken takes page size 1, not 16"),
        (TRITONTOKEN, Shape(8, 4096, 1, kv_layout="HND"), H200, "leave out hnd"),
        (TRITONROW, Shape(8, 4096, 48), H200, "powers of two, not 48"),
        (TRITONTILE, Shape(8, 4096, 16, head_dim=96), H200, "head_dim 64, 128, 256, not 96"),
        (TRITONTILE, Shape(8, 4096, 16, head_dim=96), CPU, "head_dim 64, 128, 256, not 96"),
        (TRITONTILE, Shape(8, 4096, 16), CPU, "tritontile needs an NVIDIA GPU"),
        (TRITONROW, Shape(8, 4096, 16, dtype="e4m3"), A100, "needs compute capability 8.9"),
        (TRITONTILE, Shape(8, 4096, 128, planted_loads=33), H200, "has 32: use up to x32"),
        (TRITONROW, Shape(8, 4096, 64, ragged_percent=90, planted_loads=33), H200, "shortest has"),
        (TRITONTILE, Shape(32, 8192, 16, planted_ns=9), H200, "batch x KV heads is below 256"),
        (TRITONTILE, Shape(8, 512, 16, planted_ns=9), H200, "a context above 512 tokens"),
        (TRITONTILE, Shape(25, 8192, 16, 512, 8, planted_ns=9), H200, "up to 1536"),
    ],
)
def test_refuses_with_a_reason(
    adapter: TritonDecode,
    shape: Shape,
    device: Device,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert said in str(adapter.refuses(shape, device))


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_accepts_the_cpu_when_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert TRITONROW.refuses(Shape(8, 4096, 16), CPU) is None


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_takes_a_spin_on_a_gpu_and_refuses_it_when_interpreted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = Shape(8, 513, 16, planted_ns=1000)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert TRITONTILE.refuses(shape, H200) is None
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "interpreter" in str(TRITONTILE.refuses(shape, CPU))


def test_as_many_loads_are_taken_as_the_shortest_request_has_entries() -> None:
    assert TRITONTILE._refuses_loads(Shape(8, 4096, 128, planted_loads=32)) is None
    assert TRITONTOKEN._refuses_loads(Shape(8, 64, 1, planted_loads=64)) is None
    assert TRITONTOKEN._refuses_loads(Shape(8, 63, 1, planted_loads=64)) is not None


def test_resolved_names_what_is_planted_and_nothing_else() -> None:
    plain = TRITONTILE._resolved(Shape(8, 4096, 16))
    assert plain.keys().isdisjoint({"planted_loads", "planted_ns"})
    loads = TRITONTILE._resolved(Shape(8, 4096, 16, planted_loads=8))
    spin = TRITONTILE._resolved(Shape(8, 4096, 16, planted_ns=500))
    assert loads | {"module": ""} == plain | {"planted_loads": 8, "module": ""}
    assert spin | {"module": ""} == plain | {"planted_ns": 500, "module": ""}
    assert len({plain["module"], loads["module"], spin["module"]}) == 3


@pytest.mark.parametrize("kv_len", [1, 64, 4096, 8192, 131072])
@pytest.mark.parametrize("batch", [1, 8, 32, 1000])
def test_splits_cover_the_context_and_nothing_else(batch: int, kv_len: int) -> None:
    tuning, shape = Tuning(), Shape(batch, kv_len, 16)
    tokens = tuning.tiles_per_split(shape) * tuning.block_n
    splits = tuning.splits(shape)
    assert (splits - 1) * tokens < kv_len <= splits * tokens
    assert splits <= MAX_SPLITS


def test_grid_is_the_same_for_all_page_sizes() -> None:
    splits = {Tuning().splits(Shape(8, 4000, page)) for page in (1, 16, 64, 128)}
    assert len(splits) == 1


def test_tuning_refuses_a_tile_as_long_as_the_cta() -> None:
    with pytest.raises(ValueError, match="more than 4 warps"):
        Tuning(block_n=128, num_warps=4)


def test_workspace_holds_partials_of_every_split() -> None:
    shape = Shape(32, 8192, 64)
    rows, splits = 32 * 16, Tuning().splits(shape)
    partials = rows * splits * (128 * 4 + 4)
    table, lengths_and_begins, out = 32 * 128 * 4, 32 * 2 * 4, rows * 128 * 2
    expected = partials + table + lengths_and_begins + out
    assert TRITONTILE.workspace_bytes(shape) == expected


if __name__ == "__main__":
    main()
