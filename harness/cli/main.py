"""The command line: its commands, and how each of them ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from math import inf
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from pagebench.harness.cli.streams import Signalled, end_on_signals, leave_stdout, own_streams
from pagebench.harness.errors import UserError
from pagebench.harness.escape import brief_line, visible

# A command's file is loaded when the command is used, so `list` loads nothing else.
ROOMS = {
    "listing": ("list",),
    "timing": ("run", "once"),
    "report": ("report",),
    "machine": ("doctor",),
    "counting": ("profile", "import", "audit"),
    "baseline": ("baseline",),
    "gate": ("compare",),
    "instruments": ("calibrate", "ceilings", "oracle", "show"),
    "judging": ("judge", "dose"),
    "attacking": ("attack", "selftest"),
    "study": ("study",),
}
ROOM_OF = {name: room for room, names in ROOMS.items() for name in names}

# Newer typer bundles click, older typer imports it: this is the class that either one raises.
UsageError: Any = typer.BadParameter.__bases__[0]
EXIT_USAGE = 2
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130
READER_LEFT = 141  # 128 + SIGPIPE, as a shell reports a process whose reader has left
# Errors of a write to stdout where the disk is full or the stream is closed.
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


class Commands(TyperGroup):
    """The commands by name. UserError for an unknown one, with the nearest name, or with all."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(ROOM_OF)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        room = ROOM_OF.get(cmd_name)
        return commands_of(room)[cmd_name] if room else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in ROOM_OF:
            raise UserError(f"no command {args[0]}; {_instead_of(args[0])}")
        return super().resolve_command(ctx, args)


def _instead_of(word: str) -> str:
    near = get_close_matches(word, ROOM_OF, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(ROOM_OF)}"


@cache
def commands_of(room: str) -> Mapping[str, Any]:
    """The commands of a file in this folder: functions in COMMANDS, typer apps in GROUPS."""
    module = import_module(f"pagebench.harness.cli.{room}")
    rooms = typer.Typer(rich_markup_mode=None)
    for command in getattr(module, "COMMANDS", ()):
        rooms.command(command.__name__.strip("_"))(command)
    for name, group in getattr(module, "GROUPS", {}).items():
        rooms.add_typer(group, name=name)
    found: Mapping[str, Any] = typer.main.get_group(rooms).commands
    for command in found.values():
        for each in vars(command).get("commands", {"": command}).values():
            if "kernel" in {option.name for option in each.params}:
                each.params.append(_patience())
    return found


@cache
def _patience() -> Any:
    """An option of every command that takes a kernel's file, as typer makes it of a parameter."""
    maker = typer.Typer(add_completion=False, rich_markup_mode=None)
    maker.command()(_with_patience)
    option = typer.main.get_command(maker).params[0]
    option.expose_value = False
    return option


def _set_patience(seconds: float | None) -> None:
    if seconds is None:
        return
    if not 0 < seconds < inf:
        raise UserError(f"--patience {seconds:g}: use a number of seconds above 0")
    from pagebench.harness.workers.patience import set_patience

    set_patience(seconds)


def _with_patience(
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            callback=lambda value: _set_patience(value),
            is_eager=True,  # before a file is imported
            help="longest silence before a kernel's file is refused or a worker ended: by default "
            "120 s to import the file, 1200 s to plan, and to call first and again, 180 s to "
            "start, and 120 s in other stages, or 20 calls where they take longer",
        ),
    ] = None,
) -> None:
    """The bearer of an option."""


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Time paged-attention decode kernels and say what was timed.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"pagebench {version('pagebench')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="print the version and exit"
        ),
    ] = False,
) -> None:
    """Time paged-attention decode kernels and say what was timed."""


def main() -> NoReturn:
    """Entry point. An error that the user can put right prints one line on stderr and exits 2. A
    bug of ours prints its traceback and exits 70."""
    own_streams()
    end_on_signals()
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()  # a failed write is handled below, not at the interpreter's end
    except (UserError, UsageError) as error:
        code = _complain(_wording(error))
    except BrokenPipeError:
        code = _drop_output(READER_LEFT)
    except OSError as error:
        code = _drop_output(_tell_trouble(error))
    except SystemExit as end:  # typer exits 1, a failed cell's code, if the reader has left
        left = isinstance(end.__context__, BrokenPipeError)
        code = _drop_output(READER_LEFT) if left else end.code
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except Signalled as end:
        code = end.code
    except Exception:
        code = _drop_output(_tell_bug())
    leave_stdout()
    sys.exit(code if isinstance(code, int) else 0)


def _wording(error: Exception) -> str:
    """The error in one line, without the usage that click would print above it."""
    said = str(error)
    if isinstance(error, UsageError):
        said = f"{error.format_message()} (see pagebench --help)"
    return brief_line(" ".join(said.split()))


def _complain(line: str) -> int:
    print(visible(line), file=sys.stderr)
    return EXIT_USAGE


def _tell_trouble(error: OSError) -> int:
    """A full or closed output, or a file that the user named, is for the user to put right; any
    other OSError is a bug."""
    if error.filename is None and error.errno in NO_ROOM:
        return _complain(f"output: {error.strerror}")
    file = str(error.filename or "")
    named = {word.rpartition("=")[2] for word in sys.argv[1:]} | set(sys.argv[1:])
    if any(file.startswith(word) for word in named if word):
        return _complain(f"{file}: {error.strerror}")
    return _tell_bug()


def _tell_bug() -> int:
    """Print the traceback of the error that is being handled; returns its exit code."""
    import traceback

    print(visible(traceback.format_exc(), keep="\n"), end="", file=sys.stderr)
    return EXIT_BUG


def _drop_output(code: int) -> int:
    """Drop what cannot be written, or it fails again at the interpreter's end; returns the code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
