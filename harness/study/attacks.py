"""What happens to an effect in other contexts or another kernel; words as recorded."""

from __future__ import annotations

from pagebench.harness.escape import shell
from pagebench.harness.records.attack import Attack, Variant
from pagebench.harness.show import sentences
from pagebench.harness.show.caveats import caveats
from pagebench.harness.study.read import Recorded, gpus_of
from pagebench.harness.study.section import Section, Table, arrow, table_of

VARIANTS = ("A", "B", "B over A", "difference us", "interval", "time", "predicted extra work")


def attacks(recorded: Recorded) -> Section:
    """The newest attack of each kind on each pair of cells."""
    newest = {(attack.how, attack.cells): attack for attack in recorded.attacks}.values()
    if not newest:
        missing = "No attack in these files: `pagebench attack HOW A B`."
        return Section("attacks", "Attacks on the mechanism", missing=missing)
    return Section(
        "attacks",
        "Attacks on the mechanism",
        text=tuple(map(_attacked, newest)),
        tables=tuple(map(_table, newest)),
        commands=tuple(map(_command, newest)),
    )


def _attacked(attack: Attack) -> str:
    told = (*sentences.attack_ends(attack), *caveats(attack.caveats))
    said = (f"{text[0].upper()}{text[1:]}." for text in told)
    return " ".join([f"{_what(attack)}: **{attack.word}**.", *said])


def _what(attack: Attack) -> str:
    return f"{arrow(attack.cells)}, another {attack.how}"


def _table(attack: Attack) -> Table:
    rows = list(map(_variant, attack.variants))
    return table_of(_what(attack), VARIANTS, rows, gpus=(gpus_of(attack),))


def _variant(variant: Variant) -> tuple[str, ...]:
    delta, work = variant.delta, variant.work
    return (
        *variant.cells,
        f"{variant.time.ratio:.4f}",
        f"{delta.middle_us:+.2f}",
        f"{delta.low_us:+.2f} to {delta.high_us:+.2f}",
        variant.time.word,
        f"{work.name} {work.amount:+,.0f}",
    )


def _command(attack: Attack) -> str:
    other = attack.variants[-1].cells[0].partition("_")[0]
    which = ("--with", other) if attack.how == "kernel" else ()
    return shell("pagebench", "attack", attack.how, *attack.cells, *which)
