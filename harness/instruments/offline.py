r"""The offline bundle in `.gpubox/`: what a GPU machine without a package index needs.

    make offline-bundle [ARCH=9.0a] [TARGET_PYTHON=3.12] [TARGET_MACHINE=aarch64] \
        [FLASHINFER=0.7.2.post1]

It holds wheels, FlashInfer without the sources of unrelated kernels, and the commit from which it
was made. With ARCH it also holds the FlashInfer modules of all suites, cross-built here for that
GPU (this needs nvcc). On the GPU machine, make finds the bundle and uses that machine's Python,
torch and Triton.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.environment import commit
from pagebench.harness.records.store import replacing, write_whole
from pagebench.harness.suites import SUITES
from pagebench.kernels.device import Device

BOX = Path(".gpubox")
WHEELS = (
    *("apache-tvm-ffi==0.1.15.post2", "cupti-python==13.4.0", "pyelftools", "diptest"),
    *("msgspec", "nvidia-ml-py"),
)
# Versions of glibc in names of wheels, newest first; x86_64 has an older name besides.
GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
# Sources of kernels that have nothing to do with decode: two thirds of FlashInfer's wheel.
UNRELATED = ("cake_*", "kda", "fused_moe", "gdn", "experimental", "blackwell*", "alphamoe*")
CUDA_HOME = "/usr/local/cuda"
HOPPER = Device("cuda", "the bundle's GPU", 0, (9, 0))

ENTER = """\
# Source this in the project's root on the GPU machine. It unpacks once, then extends PYTHONPATH.
_box=$PWD/.gpubox
# Each tree and each bundle has its own unpacked copy.
_key=$( (pwd; cat "$_box/commit"; ls -l "$_box") | cksum | tr -d " ")
_site=${TMPDIR:-/tmp}/pagebench-site-$_key
_setup() {
  if [ -e "$_box/machine" ] && [ "$(cat "$_box/machine")" != "$(uname -m)" ]; then
    echo "this bundle is for $(cat "$_box/machine"), not for $(uname -m):" \\
      "make offline-bundle TARGET_MACHINE=$(uname -m)" >&2
    return 1
  fi
  # What an earlier attempt left is not trusted. `set -e` is off where this file is sourced.
  rm -rf "$_site" && mkdir -p "$_site" && tar -C "$_site" -xzf "$_box"/flashinfer-*.tgz &&
    { [ ! -e "$_box/modules.tgz" ] ||
      tar -C "$_site/flashinfer/data" -xzf "$_box/modules.tgz"; } &&
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \\
      --target "$_site" "$_box"/wheels/*.whl &&
    python3 -m pip install -q --no-deps --no-build-isolation -e . &&
    touch "$_site/.done"
}
[ -e "$_site/.done" ] || _setup || {
  echo "the bundle in .gpubox could not be set up; nothing was marked done" >&2
  return 1
}
export PYTHONPATH=$_site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export FLASHINFER_WORKSPACE_BASE=${TMPDIR:-/tmp}/pagebench-jit
"""


def main() -> None:
    """Make the bundle as the environment variables ARCH, TARGET_PYTHON and FLASHINFER say."""
    python = os.environ.get("TARGET_PYTHON") or "3.12"
    flashinfer = os.environ.get("FLASHINFER") or "0.7.2.post1"
    BOX.mkdir(exist_ok=True)
    machine = _clean_for(os.environ.get("TARGET_MACHINE") or platform.machine())
    _download(BOX / "wheels", python, WHEELS, machine)
    _pack_flashinfer(flashinfer, python)
    write_whole(BOX / "enter.sh", ENTER)
    state = commit()
    write_whole(BOX / "commit", f"{state['commit']} {'dirty' if state['dirty'] else 'clean'}\n")
    if os.environ.get("ARCH"):
        _build_modules(os.environ["ARCH"], flashinfer)
    size = sum(path.stat().st_size for path in BOX.rglob("*") if path.is_file())
    print(f"{BOX}: {size / 1e6:.0f} MB; copy it with the tree, and `make bench` there will use it")


def _clean_for(machine: str) -> str:
    """Drop wheels that are left of another bundle, and modules of another machine's kind."""
    shutil.rmtree(BOX / "wheels", ignore_errors=True)
    note = BOX / "machine"
    if not note.exists() or note.read_text().strip() != machine:
        (BOX / "modules.tgz").unlink(missing_ok=True)
    if os.environ.get("ARCH") and machine != platform.machine():
        raise SystemExit(f"ARCH compiles for {platform.machine()} only: leave it out for {machine}")
    write_whole(note, f"{machine}\n")
    return machine


def platforms(machine: str) -> list[str]:
    """Names that wheels for this kind of machine may bear."""
    return [f"{name}_{machine}" for name in (*GLIBC, *["manylinux1"] * (machine == "x86_64"))]


def _download(where: Path, python: str, packages: Iterable[str], machine: str = "") -> None:
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    words += ["--python-version", python, "--implementation", "cp", "-d", str(where)]
    names = platforms(machine or platform.machine())
    words += [word for name in names for word in ("--platform", name)]
    subprocess.run([*words, *packages], check=True)


def _pack_flashinfer(release: str, python: str) -> None:
    packed = BOX / f"flashinfer-{release}.tgz"
    if packed.exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        tree = unpack_flashinfer(release, python, Path(scratch))
        for pattern in UNRELATED:
            for path in (tree / "flashinfer/data/csrc").glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        _pack(packed, tree, ".")


def unpack_flashinfer(release: str, python: str, where: Path, *, sources: bool = True) -> Path:
    """Download FlashInfer's wheel and unpack it under `where`; returns the folder to import from.

    Without `sources` it unpacks only what Python imports: a tenth of the files, enough to read
    signatures.
    """
    _download(where, python, [f"flashinfer-python=={release}"])
    tree = where / "unpacked"
    with zipfile.ZipFile(next(where.glob("flashinfer_python-*.whl"))) as wheel:
        names = [name for name in wheel.namelist() if sources or "/data/" not in name]
        wheel.extractall(tree, names)
    return tree


def _pack(packed: Path, tree: Path, inside: str) -> None:
    with replacing(packed) as part, tarfile.open(part, "w:gz") as archive:
        archive.add(tree, inside)


# --- modules ----------------------------------------------------------------------------------


def needed_modules(cells: Iterable[Cell]) -> list[tuple[str, ...]]:
    """The FlashInfer modules that the cells need, once each: kernel, dtype, head dim.

    Those of XQA also have page size and group.
    """
    found = dict.fromkeys(_module(cell) for cell in cells)
    return [module for module in found if module is not None]


def _module(cell: Cell) -> tuple[str, ...] | None:
    from pagebench.kernels.registry import find_kernel

    shape = cell.shape
    if cell.kernel not in ("xqa", "fidecode", "fitc", "fifa3"):
        return None
    if find_kernel(cell.kernel).refuses(shape, HOPPER) is not None:
        return None
    sizes: tuple[str, ...] = (cell.kernel, shape.dtype, str(shape.head_dim))
    return (*sizes, str(shape.page_size), str(shape.group)) if cell.kernel == "xqa" else sizes


def _build_modules(arch: str, release: str) -> None:
    """Cross-build in `.gpubox/build`; FlashInfer loads the result without compiling."""
    scratch = (BOX / "build").resolve()
    scratch.mkdir(exist_ok=True)
    with tarfile.open(BOX / f"flashinfer-{release}.tgz") as archive:
        archive.extractall(scratch / "flashinfer", filter="data")
    sys.path.insert(0, str(scratch / "flashinfer"))
    _prepare_compiler(arch, scratch)
    for module in needed_modules(cell for suite in SUITES for cell in suite.cells):
        spec = _spec(module)
        kept = scratch / "aot" / spec.name / f"{spec.name}.so"
        if not kept.exists():
            print("building", *module, flush=True)
            spec.build(verbose=False)
            kept.parent.mkdir(parents=True, exist_ok=True)
            with replacing(kept) as part:
                shutil.copy(spec.jit_library_path, part)
    _pack(BOX / "modules.tgz", scratch / "aot", "aot")
    shutil.rmtree(scratch)


def _prepare_compiler(arch: str, scratch: Path) -> None:
    """Prepare to link modules against the driver library: a stub, as this machine may lack it."""
    os.environ["FLASHINFER_CUDA_ARCH_LIST"] = arch
    os.environ["FLASHINFER_WORKSPACE_BASE"] = str(scratch)
    os.environ.setdefault("CUDA_HOME", CUDA_HOME)
    stub = scratch / "libcuda.so"
    words = ["gcc", "-shared", "-o", str(stub), "-Wl,-soname,libcuda.so.1", "-x", "c", os.devnull]
    subprocess.run(words, check=True)
    os.environ["LIBRARY_PATH"] = f"{scratch}:{os.environ.get('LIBRARY_PATH', '')}"
    # The stub has no symbols, so a linker that drops unneeded libraries would drop the driver.
    os.environ["FLASHINFER_EXTRA_LDFLAGS"] = "-Wl,--no-as-needed -lcuda"
    # fa3 includes curand_kernel.h through CUTLASS; a minimal CUDA toolkit lacks it.
    if not Path(os.environ["CUDA_HOME"], "include/curand_kernel.h").exists():
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        _download(scratch, python, ["nvidia-curand"])
        with zipfile.ZipFile(next(scratch.glob("nvidia_curand-*.whl"))) as wheel:
            wheel.extractall(scratch / "curand")
        header = next((scratch / "curand").rglob("curand_kernel.h"))
        os.environ["CPATH"] = f"{header.parent}:{os.environ.get('CPATH', '')}"


def _spec(module: tuple[str, ...]) -> Any:
    import torch
    from flashinfer.jit.attention import modules
    from flashinfer.jit.xqa import gen_xqa_module

    from pagebench.layouts.tensors import torch_dtype

    kernel, dtype, head_dim = module[0], torch_dtype(module[1]), int(module[2])
    q = torch.bfloat16 if module[1] == "e4m3" else dtype
    if kernel == "xqa":
        return gen_xqa_module(q, dtype, int(module[3]), head_dim, int(module[4]), False, q)
    types = (q, dtype, q, torch.int32, head_dim, head_dim, 0, False, False)
    if kernel == "fidecode":
        return modules.gen_batch_decode_module(*types)
    if kernel == "fitc":  # the variant for K and V of equal strides, private in 0.7.2
        return modules._gen_batch_prefill_primary_module("fa2", *types, False)
    return modules.gen_batch_prefill_module("fa3", *types, False)
