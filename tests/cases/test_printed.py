"""What comes from plug-ins and is printed, files that are written whole, and refuted ceilings."""

from __future__ import annotations

import errno
import tarfile
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from fakes import H200, pagebench_here
from fakes.made import ceilings
from pagebench.harness.cli.report import beside_ceilings
from pagebench.harness.cli.timing import _Elapsing
from pagebench.harness.errors import UserError
from pagebench.harness.instruments import offline
from pagebench.harness.records import store
from pagebench.harness.records.timing import Check, Timing
from pagebench.profiles.ceilings import Point

CELL = "xqa_distinct_p64_b32_l8192"
PASSED = Check(tolerance=0.01, requests=1, of_requests=1, error_needles=0.0)
EVIL = "a\x1b[2J\x07\u202e\u200b\n"
PLUGIN = f"""
import sys
from dataclasses import replace
from pagebench.kernels.gather import Gather
EVIL = {EVIL!r}

class Odd(Gather):
    name = "odd"
    def plan(self, batch, *, graph):
        call = super().plan(batch, graph=graph)
        return replace(call, resolved={{"kernel": EVIL, EVIL: EVIL, "splits": 1}}, symbols=(EVIL,))
    def refuses(self, shape, device):
        return "too long" + EVIL if shape.kv_len > 64 else None

ADAPTER = Odd()
"""


def hidden(text: str) -> list[str]:
    return [char for char in text if not char.isprintable() and char != "\n"]


@pytest.mark.parametrize(
    "words",
    [
        ("list", "odd_distinct_p16_b1_l65"),
        ("once", "odd_distinct_p16_b1_l48", "--device", "cpu"),
        ("once", "odd_distinct_p16_b1_l65", "--device", "cpu"),
        ("run", "odd_distinct_p16_b1_l65", "--device", "cpu"),
    ],
)
def test_a_plugins_texts_are_escaped_by_every_command(in_tmp: Path, words: tuple[str, ...]) -> None:
    """3acd176 printed control characters of `resolved`, symbols and refusals as they were."""
    Path("odd.py").write_text(PLUGIN)
    done = pagebench_here(*words, "--kernel", "odd.py")
    assert hidden(done.stdout + done.stderr) == []
    assert "\\x1b" in done.stdout + done.stderr or "\\u001b" in done.stdout


def test_the_live_line_reads_no_markup() -> None:
    """3acd176 took brackets of a cell's reason for rich's markup, and a backslash hid an escape."""
    for text in ("[bold red]x[/]", "\\[link=http://x]y[/link]", "[/nothing]"):
        shown = _Elapsing(text).__rich__()
        assert shown.plain.startswith(text)
        assert not shown.spans


def test_a_reason_of_a_swept_cell_is_escaped(pytester: pytest.Pytester) -> None:
    """3acd176 printed an adapter's refusal in pytest's summary as it was."""
    pytester.makepyfile(
        f"""
        import pytest
        from types import SimpleNamespace
        from unittest.mock import patch
        from pagebench.harness.plugin import cells
        from pagebench.kernels.adapter import Refusal

        def test_it(request):
            pool = SimpleNamespace(device=SimpleNamespace(kind="cuda", name="x"))
            cell = "x"
            with patch.object(cells, "refuse_foreign"), patch.object(cells, "default_options"):
                with patch.object(cells, "refusal", return_value=Refusal({EVIL!r}, "shape")):
                    cells.test_cell(cell, "run", pool, None, request)
        """
    )
    done = pytester.runpytest_inprocess("-rs", "-p", "no:cacheprovider", "--color=no")
    assert "\\x1b[2J" in done.stdout.str()
    assert hidden(done.stdout.str()) == []


class Full:
    """A disk that is full after some bytes."""

    def __init__(self, file: IO[Any]) -> None:
        self._file = file

    def write(self, text: Any) -> int:
        self._file.write(text[: len(text) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def test_a_full_disk_leaves_the_old_file(in_tmp: Path) -> None:
    """3acd176 left truncated pages, schemas and notes of a bundle where good ones were."""
    kept, opened = Path("kept"), Path.open
    kept.write_text("old")

    def full(self: Path, *how: Any, **more: Any) -> Any:
        file = opened(self, *how, **more)
        return Full(file) if self.name.endswith(".part") else file

    with patch.object(Path, "open", full), pytest.raises(UserError, match="No space left"):
        store.write_whole(kept, "new" * 100)
    assert (kept.read_text(), list(Path().iterdir())) == ("old", [kept])


def test_a_full_disk_leaves_the_old_archive(in_tmp: Path) -> None:
    """3acd176 left a truncated archive in the bundle."""
    packed, tree = Path("modules.tgz"), Path("tree")
    tree.mkdir()
    packed.write_text("old")
    full = OSError(errno.ENOSPC, "No space left on device")
    with patch.object(tarfile.TarFile, "add", side_effect=full), pytest.raises(UserError):
        offline._pack(packed, tree, "tree")
    assert packed.read_text() == "old"
    assert not list(Path().glob("*.part"))
    offline._pack(packed, tree, "tree")
    with tarfile.open(packed) as archive:
        assert archive.getnames() == ["tree"]


# --- 14 -------------------------------------------------------------------------------------------


def recorded(share: float, check: Check | None) -> tuple[Timing, tuple[Point, ...]]:
    """A time of an H200, and a ceiling of which it reaches that share."""
    found = store.read([H200 / "pages.jsonl"], Timing).of(Timing)
    timing = next(each for each in found if each.cell == CELL and each.clock == "events")
    assert timing.samples is not None
    assert timing.predicted is not None
    times = sorted(timing.samples.time_us)
    gbps = timing.predicted.distinct_kv_bytes / times[len(times) // 2] / 1e3
    return replace(timing, check=check), (Point(2**20, gbps / share, True),)


@pytest.mark.parametrize(
    ("share", "check", "says"),
    [
        (0.9, PASSED, "90.0%"),
        (1.003, PASSED, "100.3%"),
        (1.02, PASSED, "102.0%: refuted"),
        (1.02, None, "102.0%: the time does not stand"),
    ],
)
def test_the_study_says_where_a_ceiling_is_refuted(
    in_tmp: Path, share: float, check: Check | None, says: str
) -> None:
    """3acd176 printed 102 % of the ceiling without a word."""
    timing, curve = recorded(share, check)
    store.append(Path("r.jsonl"), timing, ceilings(dram_read=curve))
    assert pagebench_here("study", "r.jsonl", "--out", ".").returncode == 0
    row = next(
        line
        for line in Path("study.md").read_text().splitlines()
        if line.startswith(f"| {CELL} |") and f"{share:.1%}" in line
    )
    assert f"| {says} |" in row


def test_run_joins_the_usual_ceilings_or_says_that_it_did_not(
    in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3acd176 compared no time of `run` with a ceiling, and did not say so."""
    timing, curve = recorded(1.02, PASSED)
    (alone,) = beside_ceilings([timing], Path("r.jsonl"))
    assert alone.ceiling_gbps is None
    assert "runs/ceilings.jsonl has none of NVIDIA H200" in capsys.readouterr().err
    store.append(Path("runs/ceilings.jsonl"), ceilings(dram_read=curve))
    (joined,) = beside_ceilings([timing], Path("r.jsonl"))
    assert joined.ceiling_refuted is True
    assert capsys.readouterr().err == ""
