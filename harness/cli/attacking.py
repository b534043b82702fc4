"""Commands that doubt: an effect, and the suite itself."""

from __future__ import annotations

from typing import Annotated

import typer

from pagebench.harness.cell import Cell
from pagebench.harness.cli.judging import Resume, judging_options, kept, print_reasons, timed
from pagebench.harness.cli.options import (
    AsJson,
    DeviceName,
    KernelFile,
    Out,
    device_and_kernel,
    print_json,
    put,
    results_path,
    say,
)
from pagebench.harness.errors import UserError
from pagebench.harness.records import store
from pagebench.harness.show import machine, sentences
from pagebench.harness.show.conclusions import planted_table
from pagebench.harness.show.text import fold
from pagebench.harness.workers.bench import Bench
from pagebench.harness.workers.sweep import EXIT_DONE, EXIT_FAILED

# --- attack ---------------------------------------------------------------------------------------


def attack(
    how: Annotated[str, typer.Argument(help="context or kernel", metavar="HOW")],
    one: Annotated[str, typer.Argument(metavar="A")],
    other: Annotated[str, typer.Argument(metavar="B")],
    with_: Annotated[
        str | None, typer.Option("--with", help="the other kernel (the first that takes both)")
    ] = None,
    out: Out = None,
    resume: Resume = False,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """Attack an effect: does it survive another context, or another kernel?"""
    from pagebench.harness.judging import attack as attacks

    here = device_and_kernel(device, kernel)
    if how not in ("context", "kernel"):
        raise UserError(f"attack {how}: use context or kernel")
    if with_ and how == "context":
        raise UserError("--with names another kernel: use it with attack kernel")
    cells = Cell.parse(one), Cell.parse(other)
    attacks.check_pair(how, cells)
    pairs = attacks.scaled(cells) if how == "context" else attacks.switched(cells, here, with_)
    options = judging_options([cell for pair in pairs for cell in pair], here, kernel)
    path = results_path(out, resume=resume)
    with kept(path):
        groups = attacks.groups_of(pairs)
        timed(groups, Bench(here, options, path, say), resume)
        found = attacks.attack_of(how, groups)
        store.append(path, found)
    if as_json:
        print_json([machine.attack_json(found)])
        return
    put(fold(f"{found.word}: {' against '.join(found.cells)}", 2))
    print_reasons(sentences.attack_lines(found))


# --- selftest -------------------------------------------------------------------------------------


def selftest(out: Out = None, device: DeviceName = "auto", as_json: AsJson = False) -> int:
    """Plant known loads and a known wait: are they found?"""
    from pagebench.harness.contrasts import planted_contrasts
    from pagebench.harness.instruments import planted as planting

    here = device_and_kernel(device, None)
    options = judging_options(planting.planted_cells(planted_contrasts()), here, None, "selftest")
    path = results_path(out)
    with kept(path):
        planted = planting.selftest(Bench(here, options, path, say))
    if as_json:
        print_json([machine.planted_json(planted)])
    else:
        put(planted_table(planted))
    return EXIT_DONE if planted.found_all else EXIT_FAILED


COMMANDS = (attack, selftest)
