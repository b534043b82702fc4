"""Opcodes of local memory, against nvdisasm, in code that ptxas makes of known loads and stores."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from fakes import pagebench_here
from pagebench.harness.judging.work import from_code
from pagebench.profiles.cubin_code import CodeError
from pagebench.profiles.sass import TRIED, local_memory, together

triton = pytest.importorskip("triton", reason="triton's wheel has ptxas and nvdisasm")
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
PTX = """
.version 8.7
.target sm_{arch}
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n) {{
  .local .align 16 .b8 a[256];
  .reg .u64 %rd<8>; .reg .u32 %r<8>; .reg .pred %q;
  ld.param.u64 %rd1,[p]; ld.param.u32 %r1,[n]; mov.u64 %rd3, a; mov.u32 %r2, 0;
L:
  ld.global.u32 %r3,[%rd1]; and.b32 %r4,%r3,63; mul.wide.u32 %rd4,%r4,4; add.u64 %rd5,%rd3,%rd4;
  {store}
  add.u32 %r2,%r2,1; setp.lt.u32 %q,%r2,%r1; @%q bra L;
  and.b32 %r4,%r1,63; mul.wide.u32 %rd4,%r4,4; add.u64 %rd5,%rd3,%rd4;
  {load}
  st.global.u32 [%rd1],%r5; ret;
}}
"""
LOCAL = ("st.local.u32 [%rd5], %r2;", "ld.local.u32 %r5,[%rd5];")
GLOBAL = ("st.global.u32 [%rd1], %r2;", "ld.global.u32 %r5,[%rd1];")
GENERIC = ("st.u32 [%rd1], %r2;", "ld.u32 %r5,[%rd1];")


@cache
def cubin(arch: int, store: str, load: str) -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as scratch:
        source, made = Path(scratch, "k.ptx"), Path(scratch, "k.cubin")
        source.write_text(PTX.format(arch=arch, store=store, load=load))
        tool = TOOLS / ("ptxas-blackwell" if arch >= 100 else "ptxas")
        if not tool.exists():
            pytest.skip(f"this Triton has no {tool.name}")
        subprocess.run([tool, "-arch", f"sm_{arch}", source, "-o", made], check=True)
        return made.read_bytes()


def disassembled(code: bytes, tmp_path: Path) -> list[str]:
    file = tmp_path / "k.cubin"
    file.write_bytes(code)
    done = subprocess.run(
        [TOOLS / "nvdisasm", "-c", file], capture_output=True, text=True, check=True
    )
    return re.findall(r"\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w*)", done.stdout)


@pytest.mark.parametrize("arch", TRIED)
def test_as_many_as_the_disassembler_shows(arch: int, tmp_path: Path) -> None:
    code = cubin(arch, *LOCAL)
    shown = disassembled(code, tmp_path)
    assert local_memory(code) == {"ldl": shown.count("LDL"), "stl": shown.count("STL")}
    assert min(local_memory(code).values()) > 0
    assert local_memory(cubin(arch, *GLOBAL)) == {"ldl": 0, "stl": 0}


@pytest.mark.parametrize("arch", [75, 90, 100])
def test_a_generic_access_may_be_local_so_nothing_is_said(arch: int, tmp_path: Path) -> None:
    code = cubin(arch, *GENERIC)
    assert {"LD", "ST"} <= set(disassembled(code, tmp_path))
    assert local_memory(code) == {}
    assert local_memory(cubin(arch, GENERIC[0], GLOBAL[1])) == {"ldl": 0}


def test_an_architecture_that_was_not_tried_says_nothing() -> None:
    code = bytearray(cubin(90, *GLOBAL))
    code[48] = 91
    assert local_memory(bytes(code)) == {}
    with pytest.raises(CodeError):
        local_memory(b"no cubin")


PLUGIN = """
from dataclasses import replace
from pathlib import Path
from pagebench.kernels.gather import Gather

class Odd(Gather):
    name = "odd"
    def plan(self, batch, *, graph):
        code = [Path(f"{batch.shape.page_size}.cubin").read_bytes()]
        return replace(super().plan(batch, graph=graph), code=lambda: code)

ADAPTER = Odd()
"""


def test_a_plugins_code_says_it_before_anything_is_counted(in_tmp: Path) -> None:
    """3acd176 knew nothing of a kernel's machine code."""
    Path("16.cubin").write_bytes(cubin(90, *GLOBAL))
    Path("32.cubin").write_bytes(cubin(90, *LOCAL))
    Path("odd.py").write_text(PLUGIN)
    cells = ("odd_distinct_p16_b2_l64_h4x2_d64", "odd_distinct_p32_b2_l64_h4x2_d64")
    done = pagebench_here("once", *cells, "--device", "cpu", "--kernel", "odd.py")
    one, other = (json.loads(line)["resolved"] for line in done.stdout.splitlines())
    assert (one["ldl"], one["stl"]) == (0, 0)
    assert from_code(one, other) == {"local_loads": None, "local_stores": None}
    assert from_code(other, one) == {"local_loads": 0.0, "local_stores": 0.0}
    assert from_code(one, one) == from_code(other, other) == {}


def test_of_several_cubins_only_what_all_say() -> None:
    assert together([{"ldl": 1, "stl": 0}, {"ldl": 2}]) == {"ldl": 3}
    assert together([]) == {}
