"""Two builds of one source hash alike, and a changed instruction does not."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from pagebench.profiles import fatbin
from pagebench.profiles.cubin_code import CodeError, cubin_hash, sections, without_file
from pagebench.profiles.fatbin import library_hash

SOURCE = """
namespace { __device__ int counts[4]; __global__ void hidden(float* x) { x[0] *= counts[1]; } }
__constant__ float table[4] = {1, 2, 3, 4};
static __device__ float first = 3.0f;
__device__ __noinline__ float helper(float a) { return a * table[(int)a & 3] + first; }
extern "C" __global__ void plain(float* x) {
  __shared__ float s[128];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = helper(s[127 - threadIdx.x]);
}
template <int N> __global__ void times(float* x) { x[threadIdx.x] *= N; }
void launch(float* x) { hidden<<<1, 1>>>(x); times<3><<<1, 1>>>(x); plain<<<1, 128>>>(x); }
"""
CHANGED = {
    "an operation": ("a * table", "a + table"),
    "a constant": ("{1, 2, 3, 4}", "{1, 2, 3, 5}"),
    "an initialised global": ("first = 3.0f", "first = 4.0f"),
    "an immediate": ("times<3>", "times<5>"),
    "shared memory": ("s[128]", "s[256]"),
    "a kernel's name": ("void plain(", "void other("),
    "a load": ("x[0] *= counts[1]", "x[0] *= counts[2]"),
}
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
needs_nvcc = pytest.mark.skipif(not os.access(NVCC, os.X_OK), reason="nvcc is not installed")
cuda = pytest.mark.skipif(fatbin.find_tool() is None, reason="cuobjdump is not installed")


def built(where: Path, source: str, *options: str, name: str = "code.cubin") -> Path:
    """The source compiled in that folder, under relative names."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "code.cu").write_text(source)
    words = [NVCC, "-arch=sm_90", *options, "-o", name, "code.cu"]
    subprocess.run(words, cwd=where, check=True, capture_output=True)
    return where / name


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return cubin_hash(built(tmp_path_factory.mktemp("plain"), SOURCE, "-cubin").read_bytes())


@needs_nvcc
@pytest.mark.parametrize("options", [(), ("-lineinfo",), ("-lineinfo", "-Xptxas=-v"), ("-I.",)])
def test_two_builds_of_one_source_hash_alike(
    options: tuple[str, ...], plain: str, tmp_path: Path
) -> None:
    """In another folder, with line numbers of it, with other options that change no code."""
    again = built(tmp_path / "deep" / "er", SOURCE, "-cubin", *options)
    assert cubin_hash(again.read_bytes()) == plain


@needs_nvcc
def test_a_comment_and_a_blank_line_change_no_hash(plain: str, tmp_path: Path) -> None:
    told = "// said\n\n" + SOURCE
    assert cubin_hash(built(tmp_path, told, "-cubin", "-lineinfo").read_bytes()) == plain


@needs_nvcc
@pytest.mark.parametrize("what", CHANGED)
def test_a_changed_instruction_or_constant_changes_the_hash(
    what: str, plain: str, tmp_path: Path
) -> None:
    old, new = CHANGED[what]
    source = SOURCE.replace(old, new).replace(
        "plain<<<", "other<<<" if "name" in what else "plain<<<"
    )
    assert source != SOURCE
    assert cubin_hash(built(tmp_path, source, "-cubin").read_bytes()) != plain


@needs_nvcc
def test_every_bit_of_the_code_counts_and_none_of_the_notes(plain: str, tmp_path: Path) -> None:
    image = built(tmp_path, SOURCE, "-cubin").read_bytes()
    (text,) = [each for each in sections(image) if each.name == ".text.plain"]
    begin = image.index(text.content)
    for at in (0, 7, 16, len(text.content) - 1):
        flipped = bytearray(image)
        flipped[begin + at] ^= 1
        assert cubin_hash(bytes(flipped)) != plain
    notes = [each for each in sections(image) if each.name == ".note.nv.tkinfo"]
    for each in notes:
        flipped = bytearray(image)
        flipped[image.index(each.content) + each.size - 5] ^= 1
        assert cubin_hash(bytes(flipped)) == plain


@needs_nvcc
def test_an_address_that_the_loader_puts_elsewhere_changes_the_hash(tmp_path: Path) -> None:
    """The bytes of both functions are alike: only the relocation says which global is read."""
    read = '__device__ float a, b; extern "C" __global__ void f(float* x) {{ *x = {}; }}'
    one, other = (
        built(tmp_path / name, read.format(name), "-cubin", "-rdc=true").read_bytes()
        for name in ("a", "b")
    )
    assert cubin_hash(one) != cubin_hash(other)


@pytest.mark.parametrize("fewer", ["", "x", "\x7fELF\x02\x01"])
def test_what_is_no_cubin_is_refused(fewer: str) -> None:
    with pytest.raises(CodeError):
        cubin_hash(fewer.encode("latin1"))


@needs_nvcc
def test_a_cubin_cut_off_is_refused_or_lacks_nothing_that_counts(
    plain: str, tmp_path: Path
) -> None:
    """Program headers may stand at the end; the code does not need them."""
    image = built(tmp_path, SOURCE, "-cubin").read_bytes()
    found = [hash_or_none(image[:size]) for size in range(0, len(image), 97)]
    assert {each for each in found if each} <= {plain}
    assert found[: len(found) // 2] == [None] * (len(found) // 2)


def hash_or_none(image: bytes) -> str | None:
    try:
        return cubin_hash(image)
    except CodeError:
        return None


def test_a_program_of_the_host_is_no_cubin() -> None:
    with pytest.raises(CodeError, match="another machine"):
        cubin_hash(Path("/proc/self/exe").read_bytes())


def test_names_lose_the_files_path_and_nothing_else() -> None:
    inner = "_ZN34_GLOBAL__N__{}_4_s_cu__Z1fPf6hiddenEPf"
    assert without_file(inner.format("bee6546f")) == without_file(inner.format("387226c1"))
    assert without_file(inner.format("bee6546f")) != without_file(
        inner.format("bee6546f").replace("hidden", "shown1")
    )
    static = "__nv_static_23__{0}_4_s_cu__Z1fPf__ZN32_INTERNAL_{0}_4_s_cu__Z1fPf6count_E"
    assert without_file(static.format("bee6546f")) == without_file(static.format("387226c1"))
    assert without_file("_Z5plainPf") == "_Z5plainPf"


# --- Libraries ------------------------------------------------------------------------------------

SHARED = ("-shared", "-Xcompiler=-fPIC")


def library(where: Path, source: str, *options: str) -> str:
    return library_hash(built(where, source, *SHARED, *options, name="code.so"))


@pytest.fixture(scope="module")
def plain_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return library(tmp_path_factory.mktemp("library"), SOURCE)


@needs_nvcc
@cuda
@pytest.mark.parametrize(
    "options", [(), ("-lineinfo",), ("-Xfatbin=-compress-all",), ("-Xfatbin=-compress-all", "-g")]
)
def test_two_builds_of_a_library_hash_alike_however_they_are_packed(
    options: tuple[str, ...], plain_library: str, tmp_path: Path
) -> None:
    assert library(tmp_path / "else" / "where", SOURCE, *options) == plain_library
    assert plain_library.startswith("library:")


@needs_nvcc
@cuda
def test_a_changed_instruction_in_a_library_changes_its_hash(
    plain_library: str, tmp_path: Path
) -> None:
    changed = SOURCE.replace("a * table", "a + table")
    for name, options in (("plain", ()), ("packed", ("-Xfatbin=-compress-all",))):
        found = library(tmp_path / name, changed, *options)
        assert found.startswith("library:")
        assert found != plain_library


@needs_nvcc
def test_without_a_tool_packed_code_is_hashed_by_its_bytes_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such hashes are of another kind, so they are never compared with those of the code."""
    monkeypatch.setattr(fatbin, "find_tool", lambda: None)
    one, same, other = (
        library(tmp_path / name, source, "-Xfatbin=-compress-all")
        for name, source in (
            ("1", SOURCE), ("2", SOURCE), ("3", SOURCE.replace("a * table", "a + table"))
        )
    )  # fmt: skip
    assert one.startswith("fatbin:")
    assert one != other
    assert same.startswith("fatbin:")


@needs_nvcc
def test_a_library_is_read_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = built(tmp_path, SOURCE, *SHARED, name="code.so")
    found = library_hash(path)
    read: list[int] = []
    entries = fatbin.entries
    monkeypatch.setattr(fatbin, "entries", lambda content: read.append(1) or entries(content))
    assert library_hash(path) == found
    assert read == []
    built(tmp_path, SOURCE.replace("a * table", "a + table"), *SHARED, name="code.so")
    assert library_hash(path) != found
    assert read == [1]


def test_a_library_without_code_for_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CodeError, match="no section"):
        library_hash(Path("/proc/self/exe").resolve())
    broken = tmp_path / "broken.so"
    broken.write_bytes(struct.pack("<I", 7))
    with pytest.raises(CodeError):
        library_hash(broken)
    with pytest.raises(FileNotFoundError):
        library_hash(tmp_path / "absent.so")
