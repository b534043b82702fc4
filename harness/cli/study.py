"""The command that measures a study, or draws its page from records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagebench.harness.cli.options import DeviceName, device_and_kernel, say
from pagebench.harness.errors import UserError
from pagebench.harness.workers.sweep import default_path


def study(
    files: Annotated[
        list[Path] | None, typer.Argument(help="results files to draw from", metavar="FILE")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder of study.html and study.md")] = Path("runs"),
    measure: Annotated[
        bool, typer.Option("--measure", help="measure this GPU first (ten minutes at most)")
    ] = False,
    device: DeviceName = "auto",
) -> None:
    """One page of verdicts, tables and figures from records.

    Beside them stand figures of the seed, the study on an RTX 5060 Ti that this suite began from.
    """
    if files and measure:
        raise UserError("--measure makes its own records: without results files")
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
            raise  # ours: nothing that could be installed
        raise UserError(f"drawing needs {error.name}: install it, or draw where it is") from error
    for path in written:
        print(path)


def _measured(device: str, out: Path) -> Path:
    """The file of everything that the study measured."""
    from pagebench.harness.study.measure import measure_study

    path = out / f"{default_path().stem}_study.jsonl"
    measure_study(device_and_kernel(device, None), path, say)
    print(path)
    return path


COMMANDS = (study,)
