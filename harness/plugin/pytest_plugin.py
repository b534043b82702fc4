"""The pytest plugin: device times in pytest-benchmark's tables, files and comparisons.

In a repository whose ini says `pagebench_sweeps = true`, `pytest --benchmark-only` measures the
cells of a suite. Anywhere, the fixture `device_benchmark` times a call of your own. Nothing else
is added to anybody's run: importing this costs no torch, and `--suite` exists only where asked for.
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
    """A timer that pytest-benchmark reads and measured samples advance: its public way in."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    def replay(self, benchmark: Any, samples: Samples, extra: dict[str, Any]) -> None:
        """Give pytest-benchmark the samples as its rounds, in their order."""
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
    """`--suite` is added here, where the ini is known: another project may have one of its own."""
    if early_config.getini("pagebench_sweeps"):
        parser.getgroup("pagebench").addoption(
            "--suite",
            default=None,
            help="pagebench suite that --benchmark-only measures (smoke, or kernels on a GPU)",
        )


def pytest_configure(config: pytest.Config) -> None:
    """With --benchmark-only and no path given, collect the cells instead of the tests."""
    asked = config.getini("pagebench_sweeps") and config.getoption("benchmark_only", False)
    if asked and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(CELLS_FILE)]
        config.pluginmanager.register(Refusals())
        _suite(config)  # a name that does not exist ends the run here, in one line


class Refusals:
    """What a sweep refused: said at its end, which is not a success where nothing else ran."""

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
    """Worker processes that outlive a crashing cell."""
    from pagebench.harness.workers.worker import Pool
    from pagebench.kernels.device import find_device

    with Pool(find_device()) as pool:
        yield pool


def pytest_itemcollected(item: pytest.Item) -> None:
    """pytest-benchmark makes its fixture with the timer that a marker names."""
    if "device_benchmark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.benchmark(timer=REPLAY))


@pytest.fixture
def device_benchmark(benchmark: Any) -> Callable[..., Samples]:
    """Time a call of your own on the device: `device_benchmark(run, l2="cold", clock=None)`.

    `run` launches the work and returns. On a GPU it is timed with events behind a spin kernel, on a
    CPU with the host's clock; the samples become the test's rounds in pytest-benchmark.
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
    """What a pytest-benchmark file should hold of a record beside the times: plain data."""
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
