"""The device that cells run on, found by a stand-in for NVIDIA's library."""

from __future__ import annotations

import os
import sys
from types import ModuleType

import pytest

from pagebench.kernels import device
from pagebench.kernels.device import Device

NAME = "NVIDIA GeForce RTX 4090"


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML knows one GPU, whose driver nothing here tells of."""
    nvml = ModuleType("pynvml")
    nvml.__dict__.update(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: NAME,
        nvmlDeviceGetCudaComputeCapability=lambda handle: (8, 9),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")
    monkeypatch.delenv("CUDA_DEVICE_ORDER")


@pytest.mark.parametrize("driver", ["/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"])
def test_a_gpu_is_found_under_linux_in_a_container_and_under_wsl(
    driver: str, one_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: path == driver)
    assert device.find_device() == Device("cuda", NAME, 0, (8, 9))


def test_without_a_driver_no_library_is_asked(
    one_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    assert device.find_device().kind == "cpu"


def test_cuda_counts_gpus_in_the_order_of_their_names(
    one_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own order is the fastest first, where two models are in one machine."""
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    device.find_device()
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize("wanted", ["tpu", "cpu:0", "cuda:x", "cuda:99"])
def test_a_device_that_is_not_there_is_an_error_of_its_own(wanted: str) -> None:
    with pytest.raises(device.DeviceError, match=f"device {wanted}: "):
        device.find_device(wanted)
