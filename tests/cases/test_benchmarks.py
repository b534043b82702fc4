"""Device times in pytest-benchmark: they are those that were measured, of the device they name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

# Loaded before pytester snapshots the modules: neither can be imported twice in a process.
import torch
from scipy import special

from pagebench.harness import suites
from pagebench.harness.cell import Cell
from pagebench.harness.plugin import cells as pytest_cells
from pagebench.harness.timing import call
from pagebench.harness.workers import worker
from pagebench.kernels.device import find_device

LOADED = (torch, special, pytest_cells, worker, call)

SLEEP_S = 0.003
OWN = """
    import time
    import pytest

    def call():
        time.sleep(0.003)

"""
ONE = (
    OWN
    + """
    def test_it(device_benchmark):
        device_benchmark(call, seconds=0.05)
"""
)
PRETENDED = """
    import os
    from pagebench.harness.timing import call
    from pagebench.kernels.device import Device

    if gpu := os.environ.get("A_GPU"):
        call.find_device = lambda wanted="auto": Device("cpu", gpu)
"""
AS_SAVED = """
    import os, time

    def test_decode(device_benchmark):
        device_benchmark(lambda: time.sleep(float(os.environ["SLEEP"])), seconds=0.05)

    def test_host(benchmark):
        benchmark(len, "pages")
"""
GATE = ("--benchmark-compare=0001", "--benchmark-compare-fail=median:5%", "-k", "decode")


@pytest.fixture(autouse=True)
def as_if_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)


def stored(path: Path) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(path.read_text())["benchmarks"]}


# --- What is stored is what was measured ----------------------------------------------------------


def test_a_marker_a_class_and_a_late_request_store_the_device_time(
    pytester: pytest.Pytester,
) -> None:
    """3acd176 took its timer from the closest marker: beside another marker, or asked for late, it
    stored about 1 us for a call of 3 ms, and a class lost its group."""
    pytester.makepyfile(
        OWN
        + """
    def test_plain(device_benchmark):
        device_benchmark(call, seconds=0.05)

    @pytest.mark.benchmark(group="decode", timer=time.process_time, warmup=True)
    def test_marked(device_benchmark):
        device_benchmark(call, seconds=0.05)

    @pytest.mark.benchmark(group="decode")
    class TestOfAClass:
        @pytest.mark.benchmark(min_rounds=3)
        def test_twice(self, device_benchmark):
            device_benchmark(call, seconds=0.05)

        def test_method(self, device_benchmark):
            device_benchmark(call, seconds=0.05)

    def test_late(request):
        request.getfixturevalue("device_benchmark")(call, seconds=0.05)
    """
    )
    pytester.runpytest_inprocess("--benchmark-json=o.json").assert_outcomes(passed=5)
    found = stored(pytester.path / "o.json")
    assert len(found) == 5
    assert all(each["stats"]["median"] >= SLEEP_S for each in found.values())
    assert found["test_marked"]["group"] == found["test_method"]["group"] == "decode"
    assert found["test_plain"]["options"]["timer"] == "pagebench wall"


@pytest.mark.parametrize(
    "option",
    [
        "--benchmark-cprofile=tottime",
        "--benchmark-min-rounds=40",
        "--benchmark-warmup=on",
        "--benchmark-timer=time.process_time",
        "--benchmark-calibration-precision=100",
        "--benchmark-disable-gc",
        "--benchmark-only",
        "--benchmark-max-time=0.000001",
        "--benchmark-precision=0.5",
        "--benchmark-cprofile-loops=3",
    ],
)
def test_an_option_changes_no_time(pytester: pytest.Pytester, option: str) -> None:
    """3acd176 ended in StopIteration with --benchmark-cprofile."""
    pytester.makepyfile(ONE)
    result = pytester.runpytest_inprocess(option, "--benchmark-json=o.json")
    result.assert_outcomes(passed=1)
    (found,) = stored(pytester.path / "o.json").values()
    assert min(found["stats"]["data"]) >= SLEEP_S
    assert found["stats"]["iterations"] == 1


def test_the_samples_returned_are_those_stored(pytester: pytest.Pytester) -> None:
    """3acd176 stored differences of a running sum, which are other numbers."""
    pytester.makepyfile(
        OWN
        + """
    def test_it(device_benchmark, benchmark):
        samples = device_benchmark(call, seconds=0.1)
        assert benchmark.stats.stats.data == [us / 1e6 for us in samples.time_us]
    """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_what_is_disabled_or_skipped_stores_nothing(pytester: pytest.Pytester) -> None:
    """3acd176 did the same."""
    pytester.makepyfile(ONE)
    words = ("--benchmark-disable", "--benchmark-json=o.json")
    pytester.runpytest_inprocess(*words).assert_outcomes(passed=1)
    assert not (pytester.path / "o.json").exists()
    pytester.runpytest_inprocess("--benchmark-skip").assert_outcomes(skipped=1)


def test_under_xdist_nothing_is_stored_and_that_is_said(pytester: pytest.Pytester) -> None:
    """3acd176 timed beside its other workers without a word."""
    pytester.makepyfile(ONE)
    result = pytester.runpytest_subprocess("-n", "1", "--benchmark-json=o.json")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*others use the device, and nothing is stored*"])
    assert not (pytester.path / "o.json").exists()


@pytest.mark.parametrize("base", ["object", "BenchmarkFixture"])
def test_another_plugins_benchmark_is_refused_in_one_sentence(
    pytester: pytest.Pytester, base: str
) -> None:
    """3acd176 ended with --codspeed in an AttributeError; that plugin's fixture says that it is of
    pytest-benchmark's class."""
    pytester.makeconftest(
        """
        import pytest
        from pytest_benchmark.fixture import BenchmarkFixture

        class Other:
            __class__ = property(lambda self: CLASS)
            has_error = skipped = False
            def pedantic(self, target, **how): target()

        Other.__module__ = "pytest_codspeed.plugin"

        @pytest.fixture
        def benchmark():
            return Other()
        """.replace("CLASS", base)
    )
    pytester.makepyfile(ONE)
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    wanted = "*fixture `benchmark` is of pytest_codspeed: run without --codspeed"
    result.stdout.fnmatch_lines([wanted])


@pytest.mark.parametrize("what", ["median", "data"])
def test_a_plugin_that_changes_what_is_written_ends_the_run(
    pytester: pytest.Pytester, what: str
) -> None:
    """3acd176 wrote whatever another plugin put there."""
    pytester.makeconftest(
        f"""
        def pytest_benchmark_update_json(output_json):
            stats = output_json["benchmarks"][0]["stats"]
            stats["{what}"] = 1e-6 if "{what}" == "median" else [1e-6] * stats["rounds"]
        """
    )
    pytester.makepyfile(ONE)
    result = pytester.runpytest_subprocess("--benchmark-json=o.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *test_it: no file is written: *"])
    assert not (pytester.path / "o.json").exists()


def test_a_fixture_that_keeps_other_rounds_fails_the_test(pytester: pytest.Pytester) -> None:
    """3acd176 did not look at what was kept."""
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture
        def benchmark(benchmark):
            class Data(list):
                def __setitem__(self, at, what): pass

            def pedantic(target, **how):
                type(benchmark).pedantic(benchmark, target, **how)
                benchmark.stats.stats.data = Data(benchmark.stats.stats.data)

            benchmark.pedantic = pedantic
            return benchmark
        """
    )
    pytester.makepyfile(ONE)
    result = pytester.runpytest_inprocess("--benchmark-json=o.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["not stored: *"])
    assert stored(pytester.path / "o.json") == {}


@pytest.mark.parametrize("l2", ["cold", "warm"])
def test_an_empty_interval_is_refused(pytester: pytest.Pytester, l2: str) -> None:
    """3acd176 stored the time of an empty call as any other."""
    pytester.makepyfile(
        f"def test_it(device_benchmark): device_benchmark(lambda: None, l2='{l2}', seconds=0.5)"
    )
    result = pytester.runpytest_inprocess("--benchmark-json=o.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["rejected: *the interval is empty"])
    assert not (pytester.path / "o.json").exists()


# --- Our own sweep --------------------------------------------------------------------------------


@pytest.fixture
def two_cells(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    """`smoke` as a cell of each kind: one for any device, and one that needs a GPU."""
    cells = tuple(map(Cell.parse, ("gather_distinct_p16_b2_l64", "xqa_shared_p16")))
    small = suites.Suite("smoke", "?", cells)
    monkeypatch.setattr(suites, "SUITES", (small, *suites.SUITES[1:]))
    pytester.makeini("[pytest]\npagebench_sweeps = true\n")


@pytest.mark.parametrize("option", [(), ("--benchmark-cprofile=tottime",)])
def test_a_sweep_under_a_conftest_that_marks_all_items(
    pytester: pytest.Pytester, two_cells: None, option: tuple[str, ...]
) -> None:
    """3acd176 lost its timer to the conftest's marker, and stored 0.36 us for every cell."""
    pytester.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.benchmark(group="attention"), append=False)
        """
    )
    words = ("--benchmark-only", "--benchmark-json=o.json", "-k", "gather", *option)
    pytester.runpytest_inprocess(*words).assert_outcomes(passed=1, deselected=1)
    (found,) = stored(pytester.path / "o.json").values()
    assert found["group"] == "attention"
    assert found["stats"]["median"] > 1e-5
    assert found["options"]["timer"] == "pagebench wall"


@pytest.mark.skipif(find_device().kind == "cuda", reason="the refused cell would run")
@pytest.mark.parametrize(
    ("words", "code"),
    [((), 2), (("-k", "xqa"), 2), (("--device=cpu",), 0), (("-k", "xqa", "--device=cpu"), 5)],
)
def test_a_sweep_that_lacked_a_gpu_is_no_success(
    pytester: pytest.Pytester, two_cells: None, words: tuple[str, ...], code: int
) -> None:
    """3acd176 ended with 0 where one CPU cell was timed and the rest refused for want of a GPU."""
    result = pytester.runpytest_inprocess("--benchmark-only", *words)
    assert result.ret == code
    said = "ERROR: cells were refused because there is no GPU" in result.stdout.str()
    assert said == (code == 2)


# --- Saved runs -----------------------------------------------------------------------------------


@pytest.fixture
def saved(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run saved by an H200, and this session's of the same."""
    pytester.makeconftest(PRETENDED)
    pytester.makepyfile(AS_SAVED)
    monkeypatch.setenv("A_GPU", "NVIDIA H200")
    monkeypatch.setenv("SLEEP", "0.003")
    pytester.runpytest_subprocess("--benchmark-save=a").assert_outcomes(passed=2)
    (path,) = pytester.path.glob(".benchmarks/*/0001_a.json")
    return path


def test_a_file_with_device_times_names_their_device(saved: Path) -> None:
    """3acd176 wrote no word of the GPU into machine_info."""
    (facts,) = json.loads(saved.read_text())["machine_info"]["devices"]
    assert facts["name"] == "NVIDIA H200"
    assert facts["versions"]["torch"]
    extra = stored(saved)["test_decode"]["extra_info"]
    assert extra["device"] == "NVIDIA H200"
    assert isinstance(extra["notes"], list)
    assert stored(saved)["test_host"]["extra_info"] == {}


def test_a_file_without_device_times_is_as_before(pytester: pytest.Pytester) -> None:
    """3acd176 did the same: a run of the host's times alone is none of ours."""
    pytester.makepyfile("def test_host(benchmark): benchmark(len, 'pages')")
    pytester.runpytest_inprocess("--benchmark-json=o.json").assert_outcomes(passed=1)
    assert "devices" not in json.loads((pytester.path / "o.json").read_text())["machine_info"]


@pytest.mark.parametrize("sleep", ["0.003", "0.03"])
def test_a_gate_across_gpus_does_not_decide(
    saved: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, sleep: str
) -> None:
    """3acd176 let an H200's saved run pass or fail an L40S without a word."""
    monkeypatch.setenv("A_GPU", "NVIDIA L40S")
    monkeypatch.setenv("SLEEP", sleep)
    result = pytester.runpytest_subprocess(*GATE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    undecided = "ERROR: --benchmark-compare-fail does not decide, 0001_a is not compared"
    why = "name NVIDIA H200 there, NVIDIA L40S here"
    result.stdout.fnmatch_lines([f"{undecided} (1 benchmark): {why}"])
    result.stdout.no_fnmatch_line("*Performance has regressed*")


def test_without_a_gate_it_is_said(
    saved: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 drew both GPUs in one table, as now and before."""
    monkeypatch.setenv("A_GPU", "NVIDIA L40S")
    result = pytester.runpytest_subprocess("--benchmark-compare=0001")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*0001_a is not compared (1 benchmark): name NVIDIA H200 there*"])
    result.stdout.fnmatch_lines(["test_host (0001_a)*"])
    result.stdout.no_fnmatch_line("test_decode (0001_a)*")


def test_on_the_same_gpu_the_gate_decides(
    saved: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 did the same."""
    monkeypatch.setenv("SLEEP", "0.03")
    result = pytester.runpytest_subprocess(*GATE)
    assert result.ret != pytest.ExitCode.OK
    result.stderr.fnmatch_lines(["*Performance has regressed*"])
    assert "not compared" not in result.stdout.str()
    assert "machine_info is different" not in result.stderr.str()


def _without_devices(file: dict[str, Any]) -> None:
    del file["machine_info"]["devices"]


def _of_another_driver(file: dict[str, Any]) -> None:
    file["machine_info"]["devices"][0]["driver"] = "535.1"


def _of_another_torch(file: dict[str, Any]) -> None:
    file["machine_info"]["devices"][0]["versions"]["torch"] = "2.0.0"


def _of_another_slice(file: dict[str, Any]) -> None:
    file["machine_info"]["devices"][0]["mig"] = True


def _of_another_clock(file: dict[str, Any]) -> None:
    file["benchmarks"][0]["extra_info"]["clock"] = "eager"


def _of_the_host(file: dict[str, Any]) -> None:
    file["benchmarks"][0]["extra_info"] = {}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_without_devices, "the saved file does not say which device*"),
        (_of_another_driver, "driver 535.1 there, unknown here"),
        (_of_another_torch, "torch 2.0.0 there, *"),
        (_of_another_slice, "mig True there, unknown here"),
        (_of_another_clock, "clock eager there, wall here"),
        (_of_the_host, "it was timed by the host there, and on the device here"),
    ],
)
def test_what_else_makes_a_saved_run_incomparable(
    saved: Path, pytester: pytest.Pytester, change: Any, why: str
) -> None:
    """3acd176 compared them all."""
    file = json.loads(saved.read_text())
    change(file)
    saved.write_text(json.dumps(file))
    result = pytester.runpytest_subprocess(*GATE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines([f"ERROR: *0001_a is not compared (1 benchmark): {why}"])


def test_another_gpu_of_the_same_model_is_compared_and_said(
    saved: Path, pytester: pytest.Pytester
) -> None:
    """3acd176 compared them without a word."""
    file = json.loads(saved.read_text())
    file["machine_info"]["devices"][0]["uuid"] = "GPU-1"
    file["benchmarks"][0]["extra_info"]["uuid"] = "GPU-1"
    saved.write_text(json.dumps(file))
    result = pytester.runpytest_subprocess("--benchmark-compare=0001", "-k", "decode")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["0001_a is compared (1 benchmark), but uuid GPU-1 there, *"])
