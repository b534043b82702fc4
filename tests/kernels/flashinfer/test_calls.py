"""Our calls against the real FlashInfer packages, which import on CPU torch.

`make test` unpacks both under build/flashinfer/; `flashinfer_calls.py` binds the calls.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fakes import ROOT, TESTS
from pagebench.harness.cell import Cell
from pagebench.kernels.flashinfer.adapter import FIDECODE, Plan, _read
from pagebench.layouts.table import page_table
from pagebench.layouts.tensors import materialise

RELEASES = ("0.6.6", "0.7.2.post1")
SCRIPT = TESTS / "kernels" / "flashinfer" / "flashinfer_calls.py"


def bound_calls(release: str, *, script: str | None = None) -> subprocess.CompletedProcess[str]:
    tree = ROOT / "build" / "flashinfer" / release / "unpacked"
    if not tree.exists():
        pytest.skip(f"FlashInfer {release} is not unpacked: run `make test`")
    words = ["-c", script] if script else [str(SCRIPT)]
    environment = {**os.environ, "PYTHONPATH": str(tree), "FLASHINFER_CUDA_ARCH_LIST": "9.0a"}
    return subprocess.run([sys.executable, *words], env=environment, text=True, capture_output=True)


@pytest.mark.parametrize("release", RELEASES)
def test_every_call_of_ours_fits_the_real_signatures(release: str) -> None:
    done = bound_calls(release)
    assert done.returncode == 0, done.stderr[-2000:]
    calls = [line.split() for line in done.stdout.splitlines()]
    seen = {
        name: {word for words in calls if words[0] == name for word in words[1:]}
        for name in ("__init__", "plan", "run", "xqa")
    }
    assert {"q_data_type", "kv_data_type", "page_size", "last_page_len"} <= seen["plan"]
    assert {"use_cuda_graph", "paged_kv_indices_buffer", "use_tensor_cores"} <= seen["__init__"]
    assert {"q", "paged_kv_cache", "out"} <= seen["run"]
    assert {"sm_count", "kv_layout", "semaphores", "page_table"} <= seen["xqa"]
    modules = {words[1] for words in calls if words[0] == "module"}
    assert [sum(f"_page_size_{page}_" in module for module in modules) for page in (16, 64)] == [
        1,
        1,
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_a_misspelt_argument_would_fail(release: str) -> None:
    script = (
        "import sys; sys.path.insert(0, 'tests/kernels/flashinfer')\n"
        "import flashinfer_calls as calls, pagebench.kernels.flashinfer.adapter as ours\n"
        "good = ours._plan_arguments\n"
        "ours._plan_arguments = lambda batch: good(batch) | {'kv_datatype': 1}\n"
        "calls.main()"
    )
    done = bound_calls(release, script=script)
    assert done.returncode != 0
    assert "kv_datatype" in done.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_xqa_scales_are_floats_for_an_int_is_taken_for_a_tensor(release: str) -> None:
    script = (
        "import torch\n"
        "from pagebench.harness.cell import Cell\n"
        "from pagebench.kernels.xqa import adapter as xqa\n"
        "from pagebench.layouts.table import page_table\n"
        "from pagebench.layouts.tensors import materialise\n"
        "cell = Cell.parse('xqa_shared_p16_b2_l64')\n"
        "table = page_table(cell.shape, cell.streams, cell.placement, 'cpu')\n"
        "batch = materialise(table, 'page_table')\n"
        "a = xqa._arguments(batch, torch.empty_like(batch.q))\n"
        "assert type(a['q_scale']) is float and type(a['kv_scale']) is float\n"
        "t = a['page_table']\n"
        "assert t.dtype is torch.int32 and t.is_contiguous() and t.shape == (2, 4)\n"
        "assert a['k_cache'].stride() == a['v_cache'].stride()\n"
        "assert not a['semaphores'].any() and a['semaphores'].numel() >= 2 * 8\n"
    )
    done = bound_calls(release, script=script)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("plan", "read"),
    [
        ([88, 0, 0, 1], Plan(88, True)),
        ([4, 0, 0], Plan(4, False)),
        (None, None),
        ([3, 0, 1], None),
        ([88, 0, 262_144], None),
    ],
)
def test_a_plan_of_another_layout_is_not_believed(
    plan: list[int] | None, read: Plan | None
) -> None:
    """Four requests: fewer tiles than that, or a flag that is an offset, are other fields."""
    cell = Cell.parse("fidecode_distinct_p1_b4_l64")
    table = page_table(cell.shape, cell.streams, cell.placement, "cpu")
    batch = materialise(table, "token_indices", with_kv=False)
    assert _read(plan, batch) == read
    assert bool(FIDECODE._symbols(read)) is (read is not None)
