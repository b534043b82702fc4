"""The command that draws a study's page from records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def study(
    files: Annotated[
        list[Path] | None, typer.Argument(help="results files", metavar="FILE")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder of study.html and study.md")] = Path("runs"),
    measure: Annotated[
        bool, typer.Option("--measure", help="measure first (not there yet)")
    ] = False,
) -> None:
    """One page of verdicts, tables and figures from records, beside those of the seed's study."""
    from pagebench.harness import study_page
    from pagebench.harness.recorded import read
    from pagebench.harness.study import study as draw

    if measure:
        raise ValueError("--measure is not there yet: name results files")
    if not files:
        raise ValueError("name results files to draw from (make study RUN='FILES')")
    try:
        written = study_page.write(draw(read(files)), out)
    except ModuleNotFoundError as error:
        raise ValueError(f"drawing needs {error.name}: install it, or draw where it is") from error
    for path in written:
        print(path)


COMMANDS = (study,)
