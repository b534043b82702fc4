"""Stands in for ncu: notes its arguments, says what it was told to, and exports a recorded page.

The file `ncu.json` beside it: `pages` maps a word of the profiling command to the page it gives
(`""` fits every command), `say` are lines, `code` the exit status, `report` whether one is written.
A process with the word `dies_on` says `last` and is killed, of which ncu says what it does on a GPU
machine; one with `breaks_on` says `broken` instead. With `hangs` it goes on for those seconds.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

PLAN = json.loads(Path(__file__).with_name("ncu.json").read_text())
ARGUMENTS = sys.argv[1:]


def say(lines, **how):
    """As the profiled process: what reports a cell begins with the run's nonce."""
    nonce = os.environ.get("PAGEBENCH_NONCE", "")
    told = (f"{nonce}{line}" if line.startswith("{") else line for line in lines)
    print(PLAN.get("begun", ""), end="")  # by a kernel, without the end of its line
    print("\n".join([*told, *PLAN.get("stray", [])]), **how)


if "--version" in ARGUMENTS:
    print(f"Version {PLAN['version']} (build 1)")
elif "--import" in ARGUMENTS:
    with Path(__file__).with_name("exports.jsonl").open("a") as log:
        log.write(json.dumps([ARGUMENTS, os.environ.get("LC_ALL")]) + "\n")
    print(Path(ARGUMENTS[ARGUMENTS.index("--import") + 1]).read_text())
else:
    with Path(__file__).with_name("commands.jsonl").open("a") as log:
        log.write(json.dumps(ARGUMENTS) + "\n")
    breaks = PLAN.get("breaks_on") in ARGUMENTS
    if PLAN.get("dies_on") in ARGUMENTS and not breaks:
        say(PLAN.get("last", []))
        print("==ERROR== The application returned an error code (11).")
        print("==WARNING== No kernels were profiled.")
        sys.exit(11)
    say(PLAN["broken"] if breaks else PLAN["say"], flush=True)
    if "hangs" in PLAN:
        child = subprocess.Popen(["sleep", str(PLAN["hangs"])])  # as what ncu profiles
        Path(__file__).with_name("pids").write_text(f"{os.getpid()} {child.pid} end")
        time.sleep(PLAN["hangs"])
    report = Path(ARGUMENTS[ARGUMENTS.index("--export") + 1].replace("%%", "%"))
    if PLAN["report"]:
        page = next(page for word, page in PLAN["pages"].items() if not word or word in ARGUMENTS)
        report.write_text(page)
    sys.exit(PLAN["code"])
