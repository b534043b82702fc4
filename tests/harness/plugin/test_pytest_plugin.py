"""The plugin: sweeps here, a fixture anywhere, and nothing else in anybody's run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

# Loaded before pytester snapshots the modules: NumPy cannot be imported twice in a process.
from pagebench.harness import suites
from pagebench.harness.cell import Cell
from pagebench.harness.plugin import cells as pytest_cells
from pagebench.harness.workers import worker
from pagebench.kernels.device import find_device

assert pytest_cells
assert worker

SWEEPS = "[pytest]\npagebench_sweeps = true\n"
OWN_TEST = """
    import torch

    def test_my_kernel(device_benchmark):
        x = torch.randn(64, 64)
        samples = device_benchmark(lambda: x @ x, seconds=0.05)
        assert min(samples.time_us) > samples.floor_us
"""


def stored(path: Path) -> list[dict[str, Any]]:
    benchmarks: list[dict[str, Any]] = json.loads(path.read_text())["benchmarks"]
    return benchmarks


@pytest.fixture(autouse=True)
def as_if_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a worker of xdist pytest-benchmark times nothing, and these runs inherit its variables."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)


@pytest.fixture
def small_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """`smoke` as two cells, one of them refused on a CPU."""
    cells = ("gather_shared_p16_b2_l64", "gather_distinct_p16_b2_l64", "xqa_shared_p16")
    small = suites.Suite("smoke", "?", tuple(map(Cell.parse, cells)))
    monkeypatch.setattr(suites, "SUITES", (small, *suites.SUITES[1:]))


@pytest.mark.skipif(find_device().kind == "cuda", reason="the refused cell would run")
def test_benchmark_only_measures_a_suite_and_fills_the_json(
    pytester: pytest.Pytester, small_suite: None
) -> None:
    pytester.makeini(SWEEPS)
    pytester.makepyfile("def test_of_the_project(): pass")
    words = ("--benchmark-only", "--benchmark-json=o.json", "--device=cpu")
    result = pytester.runpytest_inprocess(*words)
    result.assert_outcomes(passed=2, skipped=1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["1 cell refused: xqa needs an NVIDIA GPU*"])
    first = stored(pytester.path / "o.json")[0]
    assert first["name"] == "test_cell[gather_shared_p16_b2_l64]"
    assert 1e-6 < first["stats"]["median"] < 1
    assert first["extra_info"]["page_size"] == 16
    assert first["extra_info"]["clock"] == "wall"
    assert first["stats"]["rounds"] >= 1


@pytest.mark.skipif(find_device().kind == "cuda", reason="the refused cell would run")
def test_a_sweep_that_is_refused_whole_says_why_and_is_no_success(
    pytester: pytest.Pytester, small_suite: None
) -> None:
    pytester.makeini(SWEEPS)
    result = pytester.runpytest_inprocess("--benchmark-only", "-k", "xqa", "--device=cpu")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["1 cell refused: xqa needs an NVIDIA GPU*"])


def test_words_filter_the_sweep(pytester: pytest.Pytester, small_suite: None) -> None:
    pytester.makeini(SWEEPS)
    result = pytester.runpytest_inprocess("--benchmark-only", "-k", "gather and shared")
    result.assert_outcomes(passed=1, deselected=2)


def test_stored_runs_compare(pytester: pytest.Pytester, small_suite: None) -> None:
    pytester.makeini(SWEEPS)
    words = ["--benchmark-only", "-k", "gather and shared"]
    pytester.runpytest_inprocess(*words, "--benchmark-save=base").assert_outcomes(
        passed=1, deselected=2
    )
    result = pytester.runpytest_inprocess(*words, "--benchmark-compare=0001")
    result.assert_outcomes(passed=1, deselected=2)
    result.stdout.fnmatch_lines(["*(0001_base)*"])


def test_a_suite_that_is_not_there_is_named_in_one_line(pytester: pytest.Pytester) -> None:
    pytester.makeini(SWEEPS)
    result = pytester.runpytest_subprocess("--benchmark-only", "--suite", "nope")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: no suite nope; there are smoke, placements*"])


def test_plain_pytest_runs_the_tests_alone(pytester: pytest.Pytester) -> None:
    pytester.makeini(SWEEPS)
    pytester.makepyfile("def test_of_the_project(): pass")
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_a_foreign_repository_keeps_its_own_suite_option(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "def pytest_addoption(parser): parser.addoption('--suite', default='theirs')"
    )
    pytester.makepyfile("def test_it(request): assert request.config.option.suite == 'theirs'")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_foreign_repository_is_not_swept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess("--benchmark-only")
    result.assert_outcomes(skipped=1)


def test_pytest_starts_without_our_heavy_imports(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_it(): assert not {'torch', 'scipy', 'typer', 'rich'} & set(sys.modules)"
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_fixture_times_a_call_of_ones_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(OWN_TEST)
    result = pytester.runpytest_subprocess("--benchmark-only", "--benchmark-json=o.json")
    result.assert_outcomes(passed=1)
    (benchmark,) = stored(pytester.path / "o.json")
    assert benchmark["extra_info"]["l2"] == "cold"
    assert 0 < benchmark["stats"]["median"] < 1


def test_the_fixture_refuses_a_state_there_is_not(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(device_benchmark): device_benchmark(int, l2='tepid')")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*UserError: l2 tepid: use cold or warm*"])
