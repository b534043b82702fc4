"""`device_benchmark` on a machine with several GPUs, which are pretended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.cuda import NOMINAL_GBPS, Gpus, pretended
from pagebench.harness.errors import UserError
from pagebench.harness.timing.call import Rejected, time_call


@pytest.fixture
def gpus() -> Iterator[Gpus]:
    with pretended(Gpus()) as here:
        yield here


def nothing() -> None:
    """A call that the pretended clock gives a time."""


@pytest.mark.parametrize("index", [0, 1])
def test_the_current_gpu_is_timed_and_stays_current(gpus: Gpus, index: int) -> None:
    """3acd176 timed GPU 0, and left it current, whichever was current before."""
    gpus.current = index
    timed = time_call(nothing, seconds=0.01)
    assert timed.device == ("NVIDIA H200", "NVIDIA L40S")[index]
    assert timed.environment.gpu == timed.device
    assert set(gpus.sampled_on) == {index}
    assert gpus.current == index


@pytest.mark.parametrize("index", [0, 1])
def test_it_is_current_again_after_an_error(gpus: Gpus, index: int) -> None:
    """3acd176 left whatever the call had made current."""
    gpus.current = index

    def fail() -> None:
        gpus.current = 1 - index
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        time_call(fail, seconds=0.01)
    assert gpus.current == index


@pytest.mark.parametrize("after", [0, 5])
def test_a_call_that_makes_another_gpu_current_has_no_time(gpus: Gpus, after: int) -> None:
    """3acd176 timed a stream on which nothing ran. It may change at once, or while it is timed."""
    calls: list[int] = []

    def switches() -> None:
        calls.append(1)
        if len(calls) > after:
            gpus.current = 1

    with pytest.raises(Rejected, match="makes cuda:1 current and was timed on cuda:0"):
        time_call(switches, seconds=0.01)
    assert gpus.current == 0


@pytest.mark.parametrize(
    ("share", "l2", "is_rejected"),
    [(0.99, "cold", False), (1.01, "cold", True), (40.0, "cold", True), (40.0, "warm", False)],
)
def test_bytes_faster_than_the_memorys_nominal_bandwidth_have_no_time(
    gpus: Gpus, share: float, l2: str, is_rejected: bool
) -> None:
    """3acd176 did not ask how much a call must read."""
    reads = int(share * NOMINAL_GBPS * 1e3 * gpus.time_us)
    if not is_rejected:
        assert time_call(nothing, l2=l2, seconds=0.01, reads_bytes=reads).samples.time_us
        return
    with pytest.raises(Rejected, match="more than the DRAM's nominal 4800 GB/s"):
        time_call(nothing, l2=l2, seconds=0.01, reads_bytes=reads)


def test_an_empty_interval_has_no_time(gpus: Gpus) -> None:
    """3acd176 stored the time of an empty call."""
    gpus.time_us = 1.0
    with pytest.raises(Rejected, match="the interval is empty"):
        time_call(nothing, seconds=0.01)


def test_nvml_that_tells_of_another_gpu_is_an_error(gpus: Gpus) -> None:
    """3acd176 read clocks and bandwidth of whichever GPU NVML has at that number."""
    gpus.nvml_uuids = gpus.nvml_uuids[::-1]
    with pytest.raises(UserError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        time_call(nothing, seconds=0.01)


# --- pytest-benchmark compare ---------------------------------------------------------------------

AS_SAVED = """
    import time
    from pagebench.harness.timing import call
    from pagebench.kernels.device import Device
    call.find_device = lambda wanted="auto": Device("cpu", NAME)

    def test_decode(device_benchmark):
        device_benchmark(lambda: time.sleep(0.003), seconds=0.05)
"""


def test_files_of_two_gpus_can_be_told_apart_where_no_plugin_is_loaded(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 wrote no word of the GPU. The separate command loads no plugin and compares any two
    files, so what tells them apart must stand in each of them."""
    # In a worker of xdist pytest-benchmark times nothing, and these runs inherit its variables.
    for variable in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(variable)
    for at, name in enumerate(("NVIDIA H200", "NVIDIA L40S")):
        pytester.makepyfile(AS_SAVED.replace("NAME", repr(name)))
        pytester.runpytest_subprocess(f"--benchmark-save={at}").assert_outcomes(passed=1)
    files = sorted(pytester.path.glob(".benchmarks/*/*.json"))
    whole = [json.loads(file.read_text()) for file in files]
    for field in (lambda each: each["machine_info"]["devices"][0]["name"], in_extra):
        assert [field(each) for each in whole] == ["NVIDIA H200", "NVIDIA L40S"]
    command = [sys.executable, "-m", "pytest_benchmark", "compare", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def in_extra(whole: dict[str, Any]) -> object:
    return whole["benchmarks"][0]["extra_info"]["device"]
