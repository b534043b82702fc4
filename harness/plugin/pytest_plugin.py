"""The pytest plugin: device times in pytest-benchmark's tables, files and comparisons.

In a repository whose ini says `pagebench_sweeps = true`, `pytest --benchmark-only` measures the
cells of a suite. Anywhere, the fixture `device_benchmark` times a call of your own. The
plugin changes no other run: it does not import torch, and adds `--suite` only under that ini.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pagebench.harness.records.timing import Samples, Timing
    from pagebench.harness.suites import Suite
    from pagebench.harness.workers.worker import Pool

CELLS_FILE = Path(__file__).with_name("cells.py")


class ReplayClock:
    """A timer for pytest-benchmark, in seconds, which measured samples advance."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    def replay(self, benchmark: Any, samples: Samples, extra: dict[str, Any]) -> None:
        """Pass the samples to pytest-benchmark as its rounds, in order."""
        left = iter(samples.time_us)

        def take_one() -> None:
            self._now_s += next(left) * 1e-6

        benchmark.extra_info.update(extra)
        benchmark.pedantic(take_one, rounds=len(samples.time_us), iterations=1)


REPLAY = ReplayClock()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "pagebench_sweeps", "measure pagebench's cells on --benchmark-only", "bool", False
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> None:
    """Add `--suite` here, where the ini is known: other projects may have their own `--suite`."""
    if early_config.getini("pagebench_sweeps"):
        parser.getgroup("pagebench").addoption(
            "--suite",
            default=None,
            help="pagebench suite for --benchmark-only (default: smoke, or kernels on a GPU)",
        )


def pytest_configure(config: pytest.Config) -> None:
    """With --benchmark-only and no path given, collect the cells instead of the tests."""
    asked = config.getini("pagebench_sweeps") and config.getoption("benchmark_only", False)
    if asked and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(CELLS_FILE)]
        config.pluginmanager.register(Refusals())
        _suite(config)  # an unknown name ends the run here, in one line


class Refusals:
    """Reports refused cells at the end of a sweep, which fails if it ran nothing else."""

    def __init__(self) -> None:
        self._reasons = Counter[str]()
        self._has_run = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
        elif report.when == "call" or report.failed:
            self._has_run = True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason, count in self._reasons.items():
            cells = "1 cell" if count == 1 else f"{count} cells"
            terminalreporter.write_line(f"{cells} refused: {reason}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._reasons and not self._has_run and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "pagebench_cell" not in metafunc.fixturenames:
        return
    cells = _suite(metafunc.config).cells
    metafunc.parametrize("pagebench_cell", cells, ids=[cell.name for cell in cells])


def _suite(config: pytest.Config) -> Suite:
    from pagebench.harness.errors import UserError
    from pagebench.harness.suites import find_suite
    from pagebench.kernels.device import find_device

    usual = "kernels" if find_device().kind == "cuda" else "smoke"
    try:
        named = config.getoption("suite", None)
        return find_suite(usual if named is None else named)
    except UserError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture(scope="session")
def pagebench_boundary(request: pytest.FixtureRequest) -> str:
    """What the swept suite times: `run` or `plan`."""
    return _suite(request.config).boundary


@pytest.fixture(scope="session")
def pagebench_pool() -> Iterator[Pool]:
    """Worker processes: a crashing cell does not end the session."""
    from pagebench.harness.workers.worker import Pool
    from pagebench.kernels.device import find_device

    with Pool(find_device()) as pool:
        yield pool


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that use `device_benchmark`: pytest-benchmark takes its timer from a marker."""
    if "device_benchmark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.benchmark(timer=REPLAY))


@pytest.fixture
def device_benchmark(benchmark: Any) -> Callable[..., Samples]:
    """Time a call of your own on the device: `device_benchmark(run, l2="cold", clock=None)`.

    `run` launches the work and returns. By default CUDA events behind a spin kernel time it on a
    GPU, the host's clock on a CPU. Returns the samples, in microseconds, which are also the test's
    rounds in pytest-benchmark. `seconds` limits the sampling. UserError for an unknown `l2` or
    clock.
    """

    def measure(
        run: Callable[[], object],
        *,
        l2: str = "cold",
        clock: str | None = None,
        seconds: float = 1.0,
    ) -> Samples:
        from pagebench.harness.timing.call import time_call

        timed = time_call(run, l2=l2, clock=clock, seconds=seconds)
        extra = {"clock": timed.clock, "l2": timed.l2, "floor_us": timed.samples.floor_us}
        REPLAY.replay(benchmark, timed.samples, extra | {"device": timed.device})
        return timed.samples

    return measure


def extra_info(timing: Timing) -> dict[str, Any]:
    """What a pytest-benchmark file keeps of a record besides the times, as plain data."""
    from msgspec import to_builtins

    assert timing.samples is not None
    return {
        **to_builtins(timing.axes),
        "cell": timing.cell,
        "boundary": timing.boundary,
        "clock": timing.clock,
        "l2": timing.l2,
        "floor_us": timing.samples.floor_us,
        "resolved": dict(timing.resolved),
        "predicted": to_builtins(timing.predicted) or {},
    }
