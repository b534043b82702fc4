"""The oracle record: how one kernel ended over many seeds, and how it should have."""

from __future__ import annotations

from pagebench.harness.records.base import CellName, Part, Record, Upgrade

FOUND = ("wrong", "poisoned")  # statuses of an output that is not right


class OracleRun(Part, frozen=True, kw_only=True):
    """One measurement. `failed` is the question (`timing.QUESTIONS`) that the output failed.

    `reason` stands where the output was not judged: refused, rejected or crashed.
    """

    seed: int
    status: str
    failed: str | None = None
    reason: str | None = None


class Oracle(Record, frozen=True, kw_only=True, tag="oracle"):
    """One kernel in one cell, whose name here has no seed.

    `expected` is `wrong` where every run must be found and `right` where none may be; it is absent
    for a rate, and for a kernel of which nothing is known. `kernel_sha` is that of its file.
    """

    cell: CellName
    device: str
    runs: tuple[OracleRun, ...]
    expected: str | None = None
    kernel_sha: str | None = None

    @property
    def kernel(self) -> str:
        return self.cell.partition("_")[0]

    @property
    def found(self) -> int:
        """Runs whose output was found wrong."""
        return sum(run.status in FOUND for run in self.runs)

    @property
    def is_as_expected(self) -> bool | None:
        """None where nothing is expected."""
        if self.expected is None:
            return None
        if self.expected == "wrong":
            return self.found == len(self.runs)
        return all(run.status == "measured" for run in self.runs)


UPGRADES: tuple[Upgrade, ...] = ()
