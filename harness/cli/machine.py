"""The command that shows this machine, and how fast pagebench itself is on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagebench.harness.cli.options import (
    AsJson,
    DeviceName,
    device_and_kernel,
    print_json,
    put,
    say,
    seen_device,
)
from pagebench.harness.errors import UserError
from pagebench.harness.show.text import plain
from pagebench.kernels.device import Device


def doctor(
    device: DeviceName = "auto",
    speed: Annotated[
        bool, typer.Option("--speed", help="measure how fast pagebench itself is")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="with --speed: append the records to this file")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the device, driver, versions, and which kernels run."""
    from pagebench.harness.instruments.doctor import examine

    if out and not speed:
        raise UserError("--out needs --speed")
    here = device_and_kernel(device, None) if speed else seen_device(device)
    if speed:
        _speed(here, out, as_json)
        return
    findings = examine(here)
    if as_json:
        print_json([findings])
        return
    for heading, found in findings.items():
        rows = [(f"  {name}", str(value)) for name, value in found.items()]
        put(heading)
        put(plain(("", ""), rows).lstrip("\n"))


def _speed(here: Device, out: Path | None, as_json: bool) -> None:
    from pagebench.harness.cli.report import plain_table
    from pagebench.harness.instruments.speed import speeds
    from pagebench.harness.records import store
    from pagebench.harness.show.machine import speed_json

    if out:
        store.check_appendable(out)
    rows = []
    for found in speeds(here, plain_table, say):
        kept = "kept" if found.is_kept else "over"
        rows.append((found.what, f"{found.seconds:.3f}", f"{found.limit_s:.3f}", kept))
        if out:
            store.append(out, found)
        if as_json:
            print_json([speed_json(found)])
    if not as_json:
        put(plain(("the suite itself", "seconds", "limit", ""), rows))


COMMANDS = (doctor,)
