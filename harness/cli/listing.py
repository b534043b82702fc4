"""The command that lists suites and cells. It loads only what it needs, to be fast."""

from __future__ import annotations

from pagebench.harness.cli.options import (
    AsJson,
    DeviceName,
    KernelFile,
    Names,
    SuiteName,
    add_kernel,
    print_json,
    put,
    seen_device,
    wanted,
)
from pagebench.harness.show.text import plain
from pagebench.harness.suites import SUITES, find_suite
from pagebench.harness.timing.refuse import refusal
from pagebench.kernels.device import Device
from pagebench.kernels.registry import kernel_names


def list_(
    names: Names = None,
    suite: SuiteName = None,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """List the suites, or the cells of one and whether they can run here."""
    add_kernel(kernel)
    here = seen_device(device)
    if not names and not suite:
        _list_suites(here, as_json)
        return
    cells = wanted(names, suite).cells
    boundary = find_suite(suite).boundary if suite else "run"
    reasons = {cell.name: refusal(cell, here, boundary) for cell in cells}
    if as_json:
        print_json(
            {"cell": name, "runs": reason is None, "reason": reason}
            for name, reason in reasons.items()
        )
        return
    if suite:
        put(f"{suite}: {find_suite(suite).question}")
    rows = [(name, reason or "runs") for name, reason in reasons.items()]
    put(plain(("cell", f"on {here.name}"), rows))


def _list_suites(here: Device, as_json: bool) -> None:
    if as_json:
        print_json(
            {"suite": suite.name, "question": suite.question, "cells": len(suite.cells)}
            for suite in SUITES
        )
        return
    rows = [(suite.name, str(len(suite.cells)), suite.question) for suite in SUITES]
    put(plain(("suite", "cells", "question"), rows))
    why = f", because {here.why}" if here.why else ""
    put(f"\nkernels: {', '.join(kernel_names())}\ndevice: {here}{why}")


COMMANDS = (list_,)
