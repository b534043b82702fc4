"""Records and names damaged at random, through the command line in this process.

PAGEBENCH_FUZZ_SEED picks the damage; a failure prints it. Without it the seed is today's.
"""

from __future__ import annotations

import json
import os
import random
import unicodedata
from collections.abc import Iterator
from copy import deepcopy
from datetime import date
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from fakes import H200, pagebench_here
from fakes.study_records import OTHER_KINDS
from pagebench.harness.records import codec

SEED = int(os.environ.get("PAGEBENCH_FUZZ_SEED") or date.today().toordinal())
CASES = 500
ODD: tuple[Any, ...] = (
    *(None, "", "a\x1b[2J\r\n\u202e", "\ud800", "$\\foo$", "<b>[x](javascript:y)", [], {}, [None]),
    *({"a": 1}, True, -1, 0, 0.5, 1e308, -1e308, 1e-320, 2**62, 2**80, 10**400, float("nan")),
)
COMMANDS = (
    ("report", "r.jsonl"), ("report", "r.jsonl", "--json"), ("report", "r.jsonl", "--markdown"),
    ("report", "r.jsonl", "--clocks"), ("report", "r.jsonl", "--repeats"),
    ("study", "r.jsonl", "--out", "s"), ("baseline", "save", "b.json", "--counters", "r.jsonl"),
)  # fmt: skip


def sample_lines() -> list[dict[str, Any]]:
    """A line of each kind and file, as it was recorded and as it would be written today."""
    found = []
    for name in ("pages", "plan", "counters", "study", "repeats", "selftest"):
        kinds = {}
        for text in (H200 / f"{name}.jsonl").read_text().splitlines():
            line = json.loads(text)
            kinds.setdefault(line.get("kind"), line)
        found += kinds.values()
    today = [codec.to_json(codec.from_json(line)) for line in found]
    return found + today + list(map(codec.to_json, OTHER_KINDS))


LINES = sample_lines()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else ()
    for name, part in items or (enumerate(value[:2]) if isinstance(value, list) else ()):
        yield (*path, name)
        yield from places(part, (*path, name))


def damaged(line: dict[str, Any], dice: random.Random) -> str:
    line = deepcopy(line)
    *above, last = dice.choice(list(places(line)))
    part: Any = line
    for name in above:
        part = part[name]
    if dice.random() < 0.1:
        del part[last]
    else:
        part[last] = dice.choice(ODD)
    text = json.dumps(line)
    return text[: dice.randrange(len(text))] if dice.random() < 0.1 else text


def ends_well(done: CompletedProcess[str], told: str) -> None:
    """An exit code of ours, one line of error besides lines cut off, nothing hidden."""
    assert done.returncode in (0, 1, 2), f"{told}\n{done.stderr}"
    errors = [line for line in done.stderr.splitlines() if "cut off, so it" not in line]
    assert done.returncode != 2 or len(errors) == 1, f"{told}\n{done.stderr}"
    kinds = {unicodedata.category(char) for char in (done.stdout + done.stderr).replace("\n", "")}
    assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}, told


def test_damaged_records_end_in_a_line(in_tmp: Path) -> None:
    """3acd176 ended 142 of 19,722 such lines in a traceback."""
    dice = random.Random(SEED)
    for number in range(CASES):
        text = damaged(dice.choice(LINES), dice)
        whole = json.dumps(dice.choice(LINES))
        Path("r.jsonl").write_text("\n".join(dice.choice([(text,), (text, whole), (whole, text)])))
        words = dice.choice(COMMANDS)
        told = f"PAGEBENCH_FUZZ_SEED={SEED}, case {number}: {words}: {text[:2000]}"
        ends_well(pagebench_here(*words), told)


def test_odd_names_end_in_a_line(in_tmp: Path) -> None:
    """3acd176 sent control characters of names back to the terminal."""
    dice = random.Random(SEED)
    words = [
        *[
            "xqa",
            "shared",
            "distinct",
            "prefix50",
            "p16",
            "p0",
            "b99999999",
            "l1",
            "r101",
            "h3x2",
            "d7",
            "e4m3",
            "hnd",
            "w1",
        ]
    ]
    odd = ["\x1b[2J", "\u202e", "", "p" + "9" * 30, "$(x)", "\n", "--", "p٣", "x" * 5000]
    for number in range(CASES // 2):
        name = "_".join(dice.choice(words + odd) for _ in range(dice.randrange(1, 6)))
        command = dice.choice([("list",), ("show",), ("once", "--device", "cpu")])
        if command == ("once", "--device", "cpu"):
            name += "_\x1b"  # never a name that runs
        told = f"PAGEBENCH_FUZZ_SEED={SEED}, case {number}: {command} {name[:200]!r}"
        ends_well(pagebench_here(*command, "--", name), told)
