"""What the compiler made of the Triton kernels, for sm_90: machine code needs no GPU.

The three modes are an experiment only if their index loads differ and nothing else does. Counts
are of instructions in the code, so of one warp; they are derived from the tile's geometry.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pagebench.harness.timing.code import code_of
from pagebench.kernels.adapter import Call
from pagebench.kernels.device import Device
from pagebench.kernels.triton.adapter import TritonDecode
from pagebench.kernels.triton.launch import Tuning, shared_of
from pagebench.layouts.shape import DTYPE_BYTES, Shape
from pagebench.profiles.cubin_code import cubin_hash

pytest.importorskip("triton", reason="triton is not installed")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("TRITON_INTERPRET=1: there is nothing to compile", allow_module_level=True)

TUNING = Tuning()
THREADS = 32 * TUNING.num_warps
MODES = (
    ("token", 1),
    ("row", 1),
    ("row", 16),
    ("row", 64),
    ("row", 128),
    ("tile", 1),
    ("tile", 16),
    ("tile", 64),
    ("tile", 128),
)
POINTERS = {
    "q": "*bf16",
    "k": "*bf16",
    "v": "*bf16",
    "out": "*bf16",
    "partial": "*fp32",
    "lse": "*fp32",
    "lengths": "*i32",
    "indices": "*i32",
    "first_entry": "*i32",
}
MERGE_POINTERS = {"partial": "*fp32", "lse": "*fp32", "out": "*bf16"}
TRITON_DTYPE = {"bf16": "*bf16", "fp16": "*fp16", "e4m3": "*fp8e4nv"}
SM_REGISTERS, SM_SHARED, CTA_RESERVED = 65536, 227 * 1024, 1024  # CUDA programming guide, cc 9.0
PLANTED_LOAD = "LDG.E.STRONG.SYS"  # volatile


@dataclass(frozen=True)
class Code:
    """One compiled kernel: instructions in program order, all of them and the tile loop's."""

    instructions: tuple[str, ...]  # opcode and operands, without a predicate
    loop_instructions: tuple[str, ...]
    registers: int
    shared_bytes: int

    @property
    def loop(self) -> tuple[str, ...]:
        return tuple(_opcode(instruction) for instruction in self.loop_instructions)

    def count(self, pattern: str) -> int:
        return len([text for text in self.instructions if re.fullmatch(pattern, _opcode(text))])

    @property
    def ctas_per_sm(self) -> int:
        by_registers = SM_REGISTERS // (-(-self.registers // 8) * 8 * THREADS)
        return min(by_registers, SM_SHARED // (self.shared_bytes + CTA_RESERVED))


@cache
def compiled(mode: str, page_size: int, dtype: str = "bf16", planted_loads: int = 0) -> Code:
    from pagebench.kernels.triton.kernels import split_decode

    shape = Shape(32, 8192, page_size, dtype=dtype, planted_loads=planted_loads)
    constants = TritonDecode("triton" + mode, mode, TUNING).constants(shape)
    kv = TRITON_DTYPE[dtype]
    kernel = _compile(split_decode, POINTERS | {"k": kv, "v": kv}, constants)
    return disassembled(kernel.asm["cubin"], kernel.metadata.shared)


def _compile(
    function: Any,
    pointers: dict[str, str],
    constants: Mapping[str, object],
    capability: int = 90,
) -> Any:
    """A Triton kernel, its pointers and strides multiples of 16 as they are in a call."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = pointers | dict.fromkeys(constants, "constexpr")
    signature = {name: types.get(name, "i32") for name in function.arg_names}
    aligned = [name for name in signature if name in pointers or name.startswith("stride")]
    at = {name: (number,) for number, name in enumerate(signature)}
    source = ASTSource(
        fn=function,
        signature=signature,
        constexprs={at[name]: value for name, value in constants.items()},
        attrs={at[name]: [["tt.divisibility", 16]] for name in aligned},
    )
    options = {"num_warps": TUNING.num_warps, "num_stages": TUNING.num_stages}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


@cache
def merge_code(splits: int, spin_ns: int) -> Code:
    from pagebench.kernels.triton.kernels import merge_splits

    constants = {"HEAD_DIM": 128, "BLOCK_S": splits, "SPIN_NS": spin_ns}
    kernel = _compile(merge_splits, MERGE_POINTERS, constants)
    lines = _instructions(_tool(kernel.asm["cubin"], "nvdisasm", "-c"))
    texts = tuple(text for text, _, _ in lines)
    return Code(texts, (), _registers(kernel.asm["cubin"]), kernel.metadata.shared)


def disassembled(cubin: bytes, shared_bytes: int) -> Code:
    lines = list(_instructions(_tool(cubin, "nvdisasm", "-c")))
    texts = tuple(text for text, _, _ in lines)
    begin, end = _tile_loop(lines)
    return Code(texts, texts[begin:end], _registers(cubin), shared_bytes)


def _registers(cubin: bytes) -> int:
    registers = re.search(r"REG:(\d+)", _tool(cubin, "cuobjdump", "-res-usage"))
    assert registers is not None
    return int(registers[1])


def _opcode(instruction: str) -> str:
    return instruction.split()[0]


def _tool(cubin: bytes, tool: str, option: str) -> str:
    """Output of one of the CUDA tools that Triton's wheel carries."""
    import tempfile

    import triton

    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(folder / tool), option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _instructions(text: str) -> Iterator[tuple[str, str | None, str | None]]:
    """(instruction, the label before it, the label it branches to)."""
    label = None
    for line in text.splitlines():
        if named := re.match(r"\s*(\.L_\w+):", line):
            label = named[1]
        elif found := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z].*?) *;", line):
            target = re.search(r"BRA.*`\((\.L_\w+)\)", line)
            yield found[1], label, target[1] if target else None
            label = None


def _tile_loop(lines: list[tuple[str, str | None, str | None]]) -> tuple[int, int]:
    """From the target of the one backward branch over tensor-core work to that branch."""
    at = {label: number for number, (_, label, _) in enumerate(lines) if label}
    loops = [
        (at[target], number + 1)
        for number, (_, _, target) in enumerate(lines)
        if target and at.get(target, number) < number
    ]
    (loop,) = [
        (begin, end)
        for begin, end in loops
        if any(text.startswith("HMMA") for text, _, _ in lines[begin:end])
    ]
    return loop


def _copies_a_tile(dtype: str = "bf16") -> int:
    """16-byte copies of a thread for a K and a V tile."""
    return 2 * TUNING.block_n * 128 * DTYPE_BYTES[dtype] // (16 * THREADS)


def _index_loads_a_tile(mode: str, page_size: int) -> int:
    """A scalar a page; or, of a vector, one for each token row that a thread copies a piece of."""
    if mode == "tile":
        return max(1, TUNING.block_n // page_size)
    return _copies_a_tile() // 2


modes = pytest.mark.parametrize(("mode", "page_size"), MODES)


@modes
def test_kv_moves_in_16_byte_asynchronous_copies_alone(mode: str, page_size: int) -> None:
    code = compiled(mode, page_size)
    tiles = TUNING.num_stages  # one less fills the pipeline, and one is in the loop
    assert code.count(r"LDGSTS\.E\.BYPASS\.128") == tiles * _copies_a_tile()
    assert code.count(r"LDGSTS.*") == tiles * _copies_a_tile()


@modes
def test_index_loads_are_plain_and_as_many_as_geometry_says(mode: str, page_size: int) -> None:
    code = compiled(mode, page_size)
    a_tile = _index_loads_a_tile(mode, page_size)
    assert code.loop.count("LDG.E") == a_tile
    preamble = 2  # lengths, first_entry
    ahead = 1 + TUNING.num_stages - 1  # before the loop: the first tile's, then one a filled stage
    assert code.count(r"LDG\.E") == preamble + (ahead + 1) * a_tile
    assert code.count(r"LDG\..*") == code.count(r"LDG\.E") + code.count(r"LDG\.E\.128")  # and q


@modes
def test_no_copy_or_product_waits_for_its_iterations_index_loads(mode: str, page_size: int) -> None:
    """They serve the next iteration. The assembler of Triton 3.9 reads tile's lone entry at p128
    into a uniform register as the iteration's last act, when its copies are all under way."""
    loop = compiled(mode, page_size).loop_instructions
    last_work = max(at for at, text in enumerate(loop) if text.startswith(("LDGSTS", "HMMA")))
    for at, text in enumerate(loop):
        if _opcode(text) == "LDG.E":
            (loaded,) = re.findall(r"R\d+", text.split(",")[0])
            waits = [t for t in range(at + 1, len(loop)) if re.search(rf"\b{loaded}\b", loop[t])]
            assert all(wait > last_work for wait in waits)


@modes
def test_nothing_is_spilled(mode: str, page_size: int) -> None:
    assert compiled(mode, page_size).count(r"(LDL|STL).*") == 0


@modes
def test_all_but_index_loads_and_addresses_is_the_same_work(mode: str, page_size: int) -> None:
    """Copies, shared memory, barriers, tensor cores, shuffles, exponentials, stores."""

    def work(code: Code) -> Counter[str]:
        kept = re.compile(r"(LDGSTS|LDGDEPBAR|LDS|STS|LDSM|STSM|BAR|HMMA|SHFL|MUFU|STG)\b")
        # Dummy loads, `@!PT LDS RZ`, fence shared memory; their number is the scheduler's.
        return Counter(op for op in code.loop if kept.match(op) and op != "LDS")

    code, other = compiled(mode, page_size), compiled("token", 1)
    assert work(code) == work(other)
    assert code.shared_bytes == other.shared_bytes


def test_smaller_pages_cost_loads_by_tile_and_none_by_row() -> None:
    def loads(mode: str, page_size: int) -> int:
        return compiled(mode, page_size).loop.count("LDG.E")

    assert loads("tile", 16) == 4 * loads("tile", 64)
    assert loads("tile", 64) == loads("tile", 128)
    assert loads("row", 1) == loads("row", 16) == loads("row", 64) == loads("token", 1)


@pytest.mark.parametrize(("mode", "page_size"), [m for m in MODES if m != ("tile", 1)])
def test_as_many_ctas_share_an_sm_as_shared_memory_allows(mode: str, page_size: int) -> None:
    """tile at p1 holds 64 entries in registers for the next tile; it alone has fewer CTAs."""
    code = compiled(mode, page_size)
    assert code.ctas_per_sm == SM_SHARED // (code.shared_bytes + CTA_RESERVED)


@pytest.mark.parametrize("mode", ["row", "tile"])
def test_layout_and_length_are_not_compiled_in(mode: str) -> None:
    """HND and NHD are one binary, and so are all lengths and batches that split."""
    adapter = TritonDecode("triton" + mode, mode, TUNING)
    constants = adapter.constants(Shape(8, 4096, 16))
    assert adapter.constants(Shape(8, 4096, 16, kv_layout="HND")) == constants
    assert adapter.constants(Shape(3, 5000, 16, ragged_percent=50)) == constants


def test_e4m3_is_copied_asynchronously_without_spills() -> None:
    """Half of K's copies of bf16. V's are of 8 bytes: its dot operand swizzles in eights."""
    code = compiled("tile", 16, "e4m3")
    k_copies = _copies_a_tile("e4m3") // 2
    assert code.loop.count("LDGSTS.E.BYPASS.128") == k_copies
    assert code.loop.count("LDGSTS.E.64") == 2 * k_copies
    assert code.count(r"(LDL|STL).*") == 0


# --- Planted work ---------------------------------------------------------------------------------

planted_modes = pytest.mark.parametrize(
    ("mode", "page_size"), [("token", 1), ("row", 16), ("row", 64), ("tile", 1), ("tile", 16)]
)
doses = pytest.mark.parametrize("loads", [1, 8, 64])


@planted_modes
@doses
def test_planted_loads_are_volatile_and_in_the_loop_alone(
    mode: str, page_size: int, loads: int
) -> None:
    code = compiled(mode, page_size, planted_loads=loads)
    assert code.count(re.escape(PLANTED_LOAD)) == code.loop.count(PLANTED_LOAD) == loads
    assert code.count(r"LDG.*STRONG.*") == loads
    planted = [text for text in code.loop_instructions if text.startswith(PLANTED_LOAD)]
    assert len({text.split(" desc")[1] for text in planted}) == loads  # addresses


@planted_modes
@doses
def test_planted_loads_leave_all_other_copies_loads_and_ctas_as_they_were(
    mode: str, page_size: int, loads: int
) -> None:
    def others(opcodes: tuple[str, ...]) -> Counter[str]:
        kept = re.compile(r"(LDG|LDGSTS|HMMA|BAR|STG|LDL|STL|LDSM)\b")
        return Counter(op for op in opcodes if kept.match(op) and op != PLANTED_LOAD)

    code, plain = compiled(mode, page_size, planted_loads=loads), compiled(mode, page_size)
    assert others(code.loop) == others(plain.loop)
    for opcode in ("LDG.E", "LDG.E.128", "LDGSTS.E.BYPASS.128"):
        assert code.count(re.escape(opcode)) == plain.count(re.escape(opcode))
    assert code.count(r"LDGSTS.*") == plain.count(r"LDGSTS.*")
    assert code.count(r"(LDL|STL).*") == 0
    assert code.ctas_per_sm == plain.ctas_per_sm


@pytest.mark.parametrize("loads", [0, 1])
def test_nothing_is_planted_unless_asked(loads: int) -> None:
    code = compiled("tile", 16, planted_loads=loads)
    assert any("STRONG" in text for text in code.instructions) == (loads > 0)


@pytest.mark.parametrize("splits", [2, 4, 16])
def test_the_merge_kernel_reads_the_timer_first_where_a_spin_is_planted(splits: int) -> None:
    spinning = merge_code(splits, 1000).instructions
    first_load = min(at for at, text in enumerate(spinning) if text.startswith("LDG"))
    reads = [at for at, text in enumerate(spinning) if "SR_GLOBALTIMERLO" in text]
    assert len(reads) == 2  # when it began, and in the loop
    (wait,) = [at for at, text in enumerate(spinning) if f"{1000:#x}" in text]
    assert reads[0] < reads[1] < wait < first_load
    assert not any("GLOBALTIMER" in text for text in merge_code(splits, 0).instructions)


@pytest.mark.parametrize("splits", [2, 4, 8, 16, 32])
def test_registers_let_as_many_programs_spin_at_once_as_a_wave_has(splits: int) -> None:
    """12 an SM on an RTX 4090 and 16 on others. More splits than these have few programs."""
    assert merge_code(splits, 1000).registers <= SM_REGISTERS // (16 * THREADS)


# --- The hash of the code -------------------------------------------------------------------------


def test_two_builds_hash_alike_and_a_changed_constant_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each is compiled anew: the caches are different folders."""

    def built(folder: str, page_size: int) -> str:
        from pagebench.kernels.triton.kernels import split_decode

        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / folder))
        constants = TritonDecode("tritontile", "tile", TUNING).constants(Shape(32, 8192, page_size))
        return cubin_hash(_compile(split_decode, POINTERS, constants).asm["cubin"])

    one, again, other = built("one", 16), built("two", 16), built("three", 64)
    assert one == again
    assert one != other


def test_code_that_a_launch_gave_is_hashed_without_order() -> None:
    """A launch returns the compiled kernel. Here one is compiled for a GPU that is not there."""
    from pagebench.kernels.triton.kernels import merge_splits, split_decode

    shape = Shape(8, 4096, 16)
    adapter = TritonDecode("tritontile", "tile", TUNING)
    kernels = [
        _compile(split_decode, POINTERS, adapter.constants(shape)),
        _compile(merge_splits, MERGE_POINTERS, {"HEAD_DIM": 128, "BLOCK_S": 4, "SPIN_NS": 0}),
    ]
    cubins = [kernel.asm["cubin"] for kernel in kernels]

    def call(parts: list[bytes]) -> Call:
        return Call(lambda: None, None, lambda _: None, {}, (), lambda: parts)

    both = code_of(call(cubins)).binary
    assert both == code_of(call(cubins[::-1])).binary
    assert both is not None
    assert both.startswith("cubin:")
    assert len({both, *(code_of(call([each])).binary for each in cubins)}) == 3


@pytest.mark.parametrize(
    ("capability", "head_dim", "group", "dtype"),
    [
        (90, 64, 1, "bf16"),
        (90, 128, 64, "bf16"),
        (90, 128, 64, "e4m3"),
        (90, 256, 1, "bf16"),
        (90, 256, 1, "e4m3"),
        (89, 64, 64, "bf16"),
        (89, 128, 64, "e4m3"),
        (80, 128, 32, "bf16"),
        (80, 256, 64, "bf16"),
        (120, 128, 128, "bf16"),
    ],
)
def test_shared_memory_is_what_a_refusal_says(
    capability: int, head_dim: int, group: int, dtype: str
) -> None:
    from pagebench.kernels.triton.kernels import split_decode

    sizes = {"q_heads": group, "kv_heads": 1, "head_dim": head_dim, "dtype": dtype}
    shape = Shape(8, 4096, 16, **sizes)  # type: ignore[arg-type]
    constants = TritonDecode("tritonrow", "row", TUNING).constants(shape)
    kv = TRITON_DTYPE[dtype]
    kernel = _compile(split_decode, POINTERS | {"k": kv, "v": kv}, constants, capability)
    device = Device("cuda", "?", 0, divmod(capability, 10))
    assert shared_of(shape, TUNING, device) == kernel.metadata.shared
