"""A GPU that is here, and a torch that was built without CUDA: one line, before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fakes import DATA, H200, TESTS, pagebench_here
from fakes import nvml as pretended
from pagebench.harness.cli import options
from pagebench.harness.errors import UserError
from pagebench.harness.timing import call, refuse, session
from pagebench.harness.timing.session import Session
from pagebench.kernels import device as devices
from pagebench.kernels.device import Device

PAIR = ("tritonrow_distinct_p16_b2_l64", "tritonrow_distinct_p64_b2_l64")
NEED_THE_GPU = {
    "run": ("run", PAIR[0]),
    "once": ("once", PAIR[0]),
    "judge": ("judge", *PAIR),
    "dose": ("dose", *PAIR),
    "attack": ("attack", "context", *PAIR),
    "selftest": ("selftest",),
    "calibrate": ("calibrate",),
    "ceilings": ("ceilings",),
    "profile": ("profile", PAIR[0]),
    "audit": ("audit", PAIR[0]),
    "oracle": ("oracle", PAIR[0], "--seeds", "1"),
    "study": ("study", "--measure"),
    "baseline save": ("baseline", "save", "b.json", PAIR[0]),
    "doctor": ("doctor", "--speed"),
}
GPU = Device("cuda", "NVIDIA H200", 0, (9, 0))
SAID = "NVIDIA H200 is here, but torch {} was built without CUDA: install a build from "


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """An H200 by NVML, and a torch without CUDA whose version does not say so: those of PyPI for
    some machines, and conda's."""
    monkeypatch.setattr(os.path, "exists", os.path.exists)
    monkeypatch.setitem(sys.modules, "pynvml", sys)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    pretended.install((pretended.H200,))
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "__version__", "2.9.0")


@pytest.mark.parametrize("command", NEED_THE_GPU)
def test_every_command_that_needs_the_gpu_ends_in_one_line(
    command: str, without_cuda: None, tmp_path: Path
) -> None:
    """3acd176 wrote a crash of each cell, or ended in a traceback of torch's."""
    done = pagebench_here(*NEED_THE_GPU[command], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert SAID.format("2.9.0") in done.stderr
    assert "--device cpu" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_gpu_that_is_asked_for_is_no_exception(
    device: str, without_cuda: None, tmp_path: Path
) -> None:
    done = pagebench_here("run", PAIR[0], "--device", device, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    "words",
    [
        ("list", PAIR[0]),
        ("doctor",),
        ("report", str(DATA / "timing_schema1.jsonl")),
        ("judge",),
        ("baseline", "save", "b.json", "--counters", str(H200 / "counters.jsonl")),
        ("run", "reference_distinct_p16_b1_l64", "--device", "cpu", "--seconds", "0.05"),
    ],
)
def test_what_needs_no_gpu_goes_on(
    words: tuple[str, ...], without_cuda: None, tmp_path: Path
) -> None:
    done = pagebench_here(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    if words[0] == "doctor":
        assert "was built without CUDA: install a build" in " ".join(done.stdout.split())


def test_a_call_of_ones_own_gets_the_remedy(without_cuda: None) -> None:
    """3acd176 timed the host's clock, or said only that torch cannot use it."""
    with pytest.raises(UserError, match="built without CUDA: install a build"):
        call.time_call(lambda: None)


def test_the_pytest_sweep_ends_with_2_in_one_line(tmp_path: Path) -> None:
    """3acd176 reported each cell as a crash."""
    lines = (
        f"import sys; sys.path.insert(0, {str(TESTS)!r})",
        "from fakes.nvml import *",
        "install((H200,))",
        "import torch; torch.version.cuda = None",
        "import pytest",
        "sys.exit(pytest.main(sys.argv[1:]))",
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", "\n".join(lines), "--benchmark-only", "-c", ini(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"},
    )
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    (line,) = (line for line in said.splitlines() if "NVIDIA H200 is here" in line)
    assert "built without CUDA: install a build from" in line
    assert "Traceback" not in said


def ini(folder: Path) -> Path:
    path = folder / "pytest.ini"
    path.write_text("[pytest]\npagebench_sweeps = true\n")
    return path


# --- Which torch it is ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "version", "found"),
    [
        ("None", "2.9.0+cpu", "2.9.0+cpu"),
        ("None", "2.9.0", "2.9.0"),
        ("None", "2.9.0+rocm6.4", "2.9.0+rocm6.4"),
        ("'13.0'", "2.9.0+cu130", ""),
        ("'13.0'", "2.9.0+local.cpu", ""),
    ],
)
def test_torch_tells_without_being_imported(
    cuda: str, version: str, found: str, tmp_path: Path
) -> None:
    """It takes a second to import; a parent does not need it."""
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda}\n")
    code = "from pagebench.kernels.device import torch_without_cuda as f; print(f())"
    lines = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"
    done = subprocess.run([sys.executable, "-P", "-c", lines], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (found, "")


@pytest.mark.parametrize("text", ["", "raise OSError", "cuda = '13.0'"])
def test_a_torch_that_tells_nothing_is_not_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").touch()
    if text:
        (folder / "version.py").write_text(text)
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.syspath_prepend(tmp_path)
    assert devices.torch_without_cuda() == ""
    refuse.refuse_torch(GPU)


def test_a_cpu_is_measured_with_any_torch(without_cuda: None) -> None:
    assert options.device_and_kernel("cpu", None).kind == "cpu"


def test_a_torch_that_cannot_start_cuda_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """3acd176 ended `once` and `ceilings` in torch's traceback."""

    def fails(index: int) -> Any:
        raise RuntimeError(
            "The NVIDIA driver on your system is too old (found version 11040).\nMore"
        )

    monkeypatch.setattr(torch.cuda, "set_device", fails)
    monkeypatch.setattr(session, "environment", lambda device: SimpleNamespace())
    monkeypatch.setattr(session, "usage", lambda device: {})
    with pytest.raises(
        UserError, match=r"too old \(found version 11040\); pagebench doctor"
    ) as said:
        Session(GPU)
    assert len(str(said.value).splitlines()) == 1
