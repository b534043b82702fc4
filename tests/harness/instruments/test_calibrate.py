"""What each counter sees: kernels of known loads, by construction and as recorded."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.ncu_pages import GPU, HERE, Fake, edited
from pagebench.harness.cli import instruments as cli
from pagebench.harness.errors import UserError
from pagebench.harness.instruments import calibrate as calibration
from pagebench.harness.records.calibration import Calibration
from pagebench.harness.show.sentences import calibration_lines
from pagebench.kernels.probes.calibration import BULK_COPIES, SOURCE, kernels_on
from pagebench.kernels.probes.cubin import compile_cubin
from pagebench.profiles.metrics import names_on

Counts = dict[str, tuple[float, ...]]


def calibrated(**changes: Counts) -> Calibration:
    """Of counters that all show what was executed, but for changes by kernel."""
    names = names_on("gh100")
    expected = {kernel: calibration.expected(kernel, names) for kernel in kernels_on((9, 0))}
    seen = {
        kernel: {name: (float(counts.get(name, 0)),) * 2 for name in names}
        | changes.get(kernel, {})
        for kernel, counts in expected.items()
    }
    return Calibration(
        gpu=GPU.name, chip="gh100", ncu="1", started="now", seen=seen, expected=expected
    )


def test_a_counter_that_shows_what_was_executed_agrees() -> None:
    assert calibrated().disagreements == ()


def test_a_counter_that_does_not_is_named_with_both_numbers_and_distrusted() -> None:
    wrong = calibrated(cal_bulk={"tma": (4.0 * BULK_COPIES,) * 2})
    (line,) = calibration_lines(wrong)
    assert line.startswith(f"tma: [{4.0 * BULK_COPIES}")
    assert str(BULK_COPIES) in line
    assert wrong.distrusted == ("tma",)


def test_bulk_copies_need_hopper() -> None:
    assert "cal_bulk" in kernels_on((9, 0))
    assert "cal_bulk" not in kernels_on((8, 9))


def nvcc() -> bool:
    return subprocess.run(["bash", "-c", "command -v nvcc"], capture_output=True).returncode == 0


@pytest.mark.skipif(not nvcc(), reason="nvcc is not installed")
@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (12, 0)])
def test_the_calibration_kernels_compile(capability: tuple[int, int], tmp_path: Path) -> None:
    cubin = compile_cubin(SOURCE, capability, tmp_path).read_bytes()
    assert all(kernel.encode() in cubin for kernel in kernels_on(capability))


# --- counting, with a stand-in for ncu ------------------------------------------------------------


def test_calibration_counts_on_the_gpu_that_was_asked_for(fake: Fake) -> None:
    commands = fake()
    with pytest.raises(UserError, match="calibration saw 0 launches of cal_ldg"):
        calibration.calibrate(replace(GPU, index=1), str)
    (words,) = map(json.loads, commands.read_text().splitlines())
    assert words[-1].endswith("main(1)")


def test_calibrate_finds_a_file_that_it_cannot_write_before_it_counts(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "device_and_kernel", lambda name, kernel: GPU)
    monkeypatch.setattr(calibration, "calibrate", lambda *given: pytest.fail("it counted"))
    with pytest.raises(UserError, match="Is a directory"):
        cli.calibrate(out=in_tmp)


def test_what_ncu_cannot_count_is_neither_right_nor_wrong(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "environment", lambda device: HERE)
    monkeypatch.setattr(calibration, "kernels_on", lambda capability: ("cal_ldg",))
    page = edited(symbol="cal_ldg", dram_read_bytes="n/a", ldg="32,768")
    fake(pages={"": page})
    said: list[str] = []
    record = calibration.calibrate(GPU, said.append)
    assert "dram_read_bytes" not in {**record.seen["cal_ldg"], **record.expected["cal_ldg"]}
    assert "ncu cannot count here: dram_read_bytes" in said
    assert "dram_read_bytes" not in record.distrusted
    assert any(each.counter == "ldg" for each in record.disagreements)
    assert (record.gpu, record.chip, record.ncu) == (GPU.name, "gh100", "2025.3.1")
