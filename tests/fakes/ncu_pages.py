"""Recorded pages of ncu and edits of them, recorded counters, and what a stand-in for ncu needs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes import DATA, H200
from pagebench.harness.environment import Environment
from pagebench.harness.records import store
from pagebench.harness.records.counters import Counters
from pagebench.kernels.device import Device
from pagebench.profiles.metrics import names_on

PAGE = (DATA / "ncu_xqa_shared_p16.csv").read_text()
THREE = (DATA / "ncu_three_cells.csv").read_text()
GPU = Device("cuda", "NVIDIA H200", 0, (9, 0))
HERE = Environment(gpu=GPU.name, uuid="GPU-1", capability=(9, 0))
NAME = "xqa_shared_p16"
RESOLVED = {"kernel": "kernel_mha (mha.cu)", "splits": 1, "page_size": 16}
TOLD: dict[str, Any] = {"cell": NAME, "resolved": RESOLVED, "symbols": ["kernel_mha"]}
Fake = Callable[..., Path]

UNSEEN = ("counters_unseen", "counters_unseen_again", "counters_unseen_third")
STUDIES = ("study", "study_other_gpu", "study_third_gpu")
FILES_OF_COUNTERS = (
    *("counters", "make_ncu", *UNSEEN, "counters_idle_splits", "selftest"),
    *STUDIES,
)


def recorded(*names: str) -> list[Counters]:
    """Counters of those recorded files, by default of the first."""
    files = [H200 / f"{name}.jsonl" for name in names or ("counters",)]
    return store.read(files, Counters).of(Counters)


def every_recorded() -> list[Counters]:
    """Counters of every file that holds loads; some cells were counted on several GPUs."""
    return recorded(*FILES_OF_COUNTERS)


def edited(page: str = PAGE, /, **columns: str) -> str:
    """A raw page with other values in columns, named as ours or as `passes`."""
    table = list(csv.reader(line for line in page.splitlines() if line.startswith('"')))
    known = names_on("gh100") | {"passes": "profiler__replayer_passes", "symbol": "Kernel Name"}
    for ours, value in columns.items():
        at = table[0].index(known[ours])
        for row in table[2:]:
            row[at] = value
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(table)
    return text.getvalue()


def one_launch(page: str) -> str:
    return "\n".join(page.splitlines()[:3])


def units(page: str, old: str, new: str) -> str:
    head, second, *rest = page.splitlines()
    return "\n".join([head, second.replace(f'"{old}"', f'"{new}"'), *rest])


def option(words: list[str], name: str) -> str:
    """The value of an option on a command line."""
    return words[words.index(name) + 1]
