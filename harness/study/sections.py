"""The study from records: its sections in the order of the page, one module each.

Every number is computed from the records or comes from `original`. A section without records says
how to make them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagebench.harness.study.attacks import attacks
from pagebench.harness.study.ceilings import ceilings
from pagebench.harness.study.doses import doses
from pagebench.harness.study.environment import environment
from pagebench.harness.study.gather import gather
from pagebench.harness.study.modes import modes
from pagebench.harness.study.nsight import nsight
from pagebench.harness.study.page_sizes import distinct, shared
from pagebench.harness.study.plan import plan
from pagebench.harness.study.planted import planted
from pagebench.harness.study.read import Recorded, all_gpus, device_name
from pagebench.harness.study.replay import replay
from pagebench.harness.study.reproduce import reproduce
from pagebench.harness.study.section import Section, named_for, told_apart
from pagebench.harness.study.verdicts import verdicts

QUESTION = "Did page size reach the kernel, and does the kernel care?"
SECTIONS = (
    verdicts,
    environment,
    gather,
    nsight,
    plan,
    shared,
    distinct,
    replay,
    doses,
    attacks,
    ceilings,
    modes,
    planted,
)


@dataclass(frozen=True, slots=True)
class Study:
    """The content of the page; `device` is the model of all records, `gpus` the single GPUs."""

    device: str
    gpus: tuple[str, ...]
    sections: tuple[Section, ...]


def study(recorded: Recorded) -> Study:
    """All sections, and at the end the commands that make their records."""
    device, gpus = device_name(recorded), all_gpus(recorded)
    drawn = tuple(told_apart(named_for(make(recorded), device), gpus) for make in SECTIONS)
    return Study(device, gpus, (*drawn, reproduce(drawn)))
