"""The command that measures a study, or draws its page from records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagebench.harness.cli.options import DeviceName, device_and_kernel, put, say
from pagebench.harness.errors import UserError
from pagebench.harness.workers.sweep import default_path


def study(
    files: Annotated[
        list[Path] | None, typer.Argument(help="results files to draw from", metavar="FILE")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for study.html and study.md")] = Path("runs"),
    measure: Annotated[
        bool, typer.Option("--measure", help="measure this GPU first (ten minutes at most)")
    ] = False,
    device: DeviceName = "auto",
) -> None:
    """Draw one page of verdicts, tables and figures from records.

    It also shows figures of the original study, which was made on an RTX 5060 Ti.
    """
    if files and measure:
        raise UserError("--measure makes its own records: leave out the results files")
    if not files and not measure:
        raise UserError("name results files to draw from, or --measure this GPU first")
    if out.suffix in (".html", ".md"):
        raise UserError(f"--out {out}: give the folder that study.html and study.md go to")
    sources = files or [_measured(device, out)]
    from pagebench.harness.study import page as study_page
    from pagebench.harness.study.read import read
    from pagebench.harness.study.sections import study as draw

    try:
        written = study_page.write(draw(read(sources)), out)
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("pagebench"):
            raise  # one of our own modules, which nobody can install
        raise UserError(f"drawing needs {error.name}: install it, or draw elsewhere") from error
    for path in written:
        put(path)


def _measured(device: str, out: Path) -> Path:
    """Measure the study and return its results file."""
    from pagebench.harness.study.measure import measure_study

    path = out / f"{default_path().stem}_study.jsonl"
    measure_study(device_and_kernel(device, None), path, say)
    put(path)
    return path


COMMANDS = (study,)
