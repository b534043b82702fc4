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

from pagebench.harness.plugin.comparing import DEVICES, Comparisons, SavedRun
from pagebench.harness.plugin.storing import (
    Measured,
    Store,
    facts_of,
    refuse_foreign,
    warn_of_sharing,
)

if TYPE_CHECKING:
    from pagebench.harness.environment import Environment
    from pagebench.harness.records.timing import Samples, Timing
    from pagebench.harness.suites import Suite
    from pagebench.harness.timing.call import TimedCall
    from pagebench.harness.workers.worker import Pool
    from pagebench.kernels.device import Device

CELLS_FILE = Path(__file__).with_name("cells.py")
STORE = pytest.StashKey[Store]()
NO_GPU = "pagebench lacked a GPU"  # a property of a skipped cell's report


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
        parser.getgroup("pagebench").addoption(
            "--device", default="auto", help="where to measure the suite: auto, cpu, cuda or cuda:N"
        )


def pytest_configure(config: pytest.Config) -> None:
    """With --benchmark-only and no path given, collect the cells instead of the tests."""
    config.stash[STORE] = Store()
    config.pluginmanager.register(DeviceTimes(config, config.stash[STORE]))
    asked = config.getini("pagebench_sweeps") and config.getoption("benchmark_only", False)
    if asked and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(CELLS_FILE)]
        config.pluginmanager.register(Refusals(config))
        _suite(config)  # an unknown name ends the run here, in one line


class DeviceTimes:
    """Watches over device times in pytest-benchmark's files: which device they are of, that they
    are those that were measured, and that no saved run of another device decides about them."""

    def __init__(self, config: pytest.Config, store: Store) -> None:
        self._config, self._store = config, store
        self._comparisons = Comparisons()

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        if facts := self._store.facts():
            machine_info[DEVICES] = facts

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_compare_machine_info(self, compared_benchmark: dict[str, Any]) -> None:
        self._comparisons.saved.append(SavedRun.of(compared_benchmark))

    @pytest.hookimpl(optionalhook=True, wrapper=True, tryfirst=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> Iterator[None]:
        yield  # after every other plugin
        self._store.refuse_changed(output_json)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Before pytest-benchmark compares, in its own wrapper of this hook."""
        benchmarks = getattr(self._config, "_benchmarksession", None)
        if benchmarks is not None:
            self._comparisons.drop(benchmarks, self._store)
        undecided = self._gates and self._comparisons.refused
        if undecided and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pagebench.harness.escape import visible

        for line in self._comparisons.lines(gates=self._gates):
            terminalreporter.ensure_newline()
            terminalreporter.write_line(visible(line))

    @property
    def _gates(self) -> bool:
        return bool(self._config.getoption("benchmark_compare_fail", None))


class Refusals:
    """Reports refused cells at the end of a sweep, which fails if it ran nothing else, or if there
    was no GPU for one and the CPU was not asked for."""

    def __init__(self, config: pytest.Config) -> None:
        self._reasons = Counter[str]()
        self._has_run = self._lacked_gpu = False
        self._asked_cpu = config.getoption("device", "auto") == "cpu"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
            self._lacked_gpu |= (NO_GPU, True) in report.user_properties
        elif report.when == "call" or report.failed:
            self._has_run = True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason, count in self._reasons.items():
            cells = "1 cell" if count == 1 else f"{count} cells"
            terminalreporter.write_line(f"{cells} refused: {reason}")
        if self._lacked_gpu and not self._asked_cpu:
            terminalreporter.write_line(
                "ERROR: cells were refused because there is no GPU; --device cpu asks for the CPU"
            )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        nothing_ran = self._reasons and not self._has_run
        if session.exitstatus == pytest.ExitCode.OK and nothing_ran:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        in_vain = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self._lacked_gpu and not self._asked_cpu and session.exitstatus in in_vain:
            session.exitstatus = pytest.ExitCode.INTERRUPTED


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "pagebench_cell" not in metafunc.fixturenames:
        return
    cells = _suite(metafunc.config).cells
    metafunc.parametrize("pagebench_cell", cells, ids=[cell.name for cell in cells])


def _suite(config: pytest.Config) -> Suite:
    from pagebench.harness.errors import UserError
    from pagebench.harness.escape import brief_line
    from pagebench.harness.suites import find_suite

    usual = "kernels" if _device(config).kind == "cuda" else "smoke"
    try:
        named = config.getoption("suite", None)
        return find_suite(usual if named is None else named)
    except UserError as error:
        raise pytest.UsageError(brief_line(str(error))) from error


def _device(config: pytest.Config) -> Device:
    from pagebench.harness.errors import UserError
    from pagebench.harness.escape import brief_line
    from pagebench.harness.timing.refuse import refuse_torch
    from pagebench.kernels.device import DeviceError, find_device

    try:
        found = find_device(config.getoption("device", "auto"))
        refuse_torch(found)
    except DeviceError as error:
        raise pytest.UsageError(brief_line(str(error))) from error
    except UserError as error:
        pytest.exit(brief_line(str(error)), returncode=2)
    return found


@pytest.fixture(scope="session")
def pagebench_boundary(request: pytest.FixtureRequest) -> str:
    """What the swept suite times: `run` or `plan`."""
    return _suite(request.config).boundary


@pytest.fixture(scope="session")
def pagebench_pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """Worker processes: a crashing cell does not end the session."""
    from pagebench.harness.workers.worker import Pool

    with Pool(_device(request.config)) as pool:
        yield pool


@pytest.fixture
def device_benchmark(request: pytest.FixtureRequest, benchmark: Any) -> Callable[..., Samples]:
    """Time a call of your own on the device: `device_benchmark(run, l2="cold", clock=None)`.

    `run` launches the work and returns. By default CUDA events behind a spin kernel time it on
    torch's current GPU, the host's clock on a CPU. Returns the samples, in microseconds, which are
    also the test's rounds in pytest-benchmark. `seconds` limits the sampling; `reads_bytes` is what
    the call must read from DRAM when the L2 is cold. UserError for an unknown `l2` or clock; a time
    that is impossible fails the test.
    """
    refuse_foreign(benchmark)

    def measure(run: Callable[[], object], **how: Any) -> Samples:
        from pagebench.harness.timing.call import Rejected, time_call

        warn_of_sharing()
        try:
            timed = time_call(run, **how)
        except Rejected as rejected:
            pytest.fail(f"rejected: {rejected}", pytrace=False)
        request.config.stash[STORE].put(benchmark, of_call(timed), profiled=run)
        return timed.samples

    return measure


def of_call(timed: TimedCall) -> Measured:
    """What pytest-benchmark stores of a call."""
    samples, uuid = timed.samples, timed.environment.uuid
    extra = {
        "clock": timed.clock,
        "l2": timed.l2,
        "floor_us": samples.floor_us,
        "device": timed.device,
        "uuid": uuid,
        "notes": _notes(samples, timed.environment),
    }
    facts = facts_of(timed.device, timed.environment)
    return Measured(_seconds(samples), timed.clock, extra, facts)


def of_cell(timing: Timing, device: str) -> Measured:
    """What pytest-benchmark stores of a cell's record."""
    assert timing.samples is not None
    extra = extra_info(timing) | {
        "device": device,
        "uuid": timing.environment.uuid,
        "notes": _notes(timing.samples, timing.environment),
    }
    facts = facts_of(device, timing.environment)
    return Measured(_seconds(timing.samples), timing.clock, extra, facts)


def _notes(samples: Samples, environment: Environment) -> list[str]:
    from pagebench.harness.show.timings import sample_notes
    from pagebench.harness.timing.stats import summarise

    return sample_notes(samples, environment, summarise(samples.time_us))


def _seconds(samples: Samples) -> tuple[float, ...]:
    return tuple(time_us / 1e6 for time_us in samples.time_us)


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
