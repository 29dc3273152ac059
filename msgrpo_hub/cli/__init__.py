"""The command line. No other package parses arguments or prints."""

from __future__ import annotations

import argparse
import errno
import io
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TextIO

from msgrpo_hub import __version__
from msgrpo_hub.cli.flags import Parser, check_flags
from msgrpo_hub.errors import UserError, unknown

COMMANDS = {
    "games": ("play", "List the games."),
    "play": ("play", "Play one episode and draw it in the terminal."),
    "train": ("training", "Train a LoRA adapter with MS-GRPO."),
    "curves": ("results", "Draw the learning curves of several runs together, with intervals over training seeds."),
    "eval": ("evaluation", "Evaluate players on the fixed episodes of a suite."),
    "compare": ("evaluation", "Compare two evaluated players, episode by episode."),
    "verify": ("evaluation", "Replay stored episodes and check every record against the rules."),
    "report": ("evaluation", "Write one HTML page with the tables, plots and replays of evaluated players."),
    "push": ("hub", "Push an adapter, rollouts, results, the built-in base, the demo or a game to the Hub."),
    "jobs": ("jobs", "Train or evaluate on the Hub's machines."),
    "leaderboard": ("results", "Rank published results after replaying every run."),
    "export": ("results", "Write published results for model cards: model-index, .eval_results."),
    "space": ("play", "Run the demo on this machine and open it in a browser."),
}
"""Command → its module and its line of help. The module has `add_COMMAND(parser)`, whose docstring is the description, and
`run_COMMAND(options)`. Only the module of the given command is imported, so that no command waits for the imports of another."""

KEPT = {"train": "finished updates are saved, continue with --resume", "eval": "finished episodes are kept"}
"""Command → note on an interruption."""


def main(arguments: list[str] | None = None) -> None:
    """The `msgrpo` command. Exit status 0: done; 2: bad input, one line says what; 128 + n: signal n, 130 by Ctrl-C."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch asks Linux for huge pages: large weights are read 8 % faster
    if "OMP_WAIT_POLICY" not in os.environ:  # a spinning thread would take the core from the thread that it waits for
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("msgrpo_hub").setLevel(logging.INFO)
    given = sys.argv[1:] if arguments is None else arguments
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the shell, as in `msgrpo games >&-`
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows only ASCII gets "?" for a line of a table
    try:
        options = parse(given)
        with _signals_as_ctrl_c():
            options.run(options)
            sys.stdout.flush()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as end:
        number = end.args[0] if end.args else signal.SIGINT
        notes = getattr(end, "__notes__", []) or [KEPT[name] for name in given[:1] if name in KEPT]
        print("; ".join(["interrupted" if number == signal.SIGINT else f"ended by {number.name}", *notes]), file=sys.stderr)
        sys.exit(128 + number)
    except OSError as error:
        if not _is_closed(sys.stdout):
            _say_disk(error)
        elif not isinstance(error, BrokenPipeError):  # a reader such as `head` may close the pipe
            print(f"error: cannot write to the standard output ({error.strerror}): expected room, or a terminal", file=sys.stderr)
        sys.exit(2)


def _say_disk(error: OSError) -> None:
    """Reports a full or forbidden disk, or a path that cannot be a folder. Raises every other error."""
    from msgrpo_hub.storage.files import AGAIN, DISK

    no_folder = error.filename and error.errno in (errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)
    if not no_folder and error.errno not in DISK:
        raise error
    remedy = "name another folder" if no_folder else f"make room or allow it, then {AGAIN}"
    print(f"error: cannot use {str(error.filename or 'a file')!r} ({os.strerror(error.errno or 0)}): {remedy}", file=sys.stderr)


def _is_closed(stream: TextIO) -> bool:
    """Whether a stream of this process is closed; if so, drops its buffer."""
    try:
        number = stream.fileno()
    except OSError:  # a stream in memory
        return False
    try:
        os.write(number, b"\n")
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        return True
    return False


@contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end a command as Ctrl-C does, unless they have a handler or are ignored, as by `nohup`."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt(signal.Signals(number))

    changed = []
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            with suppress(ValueError):  # only the main thread may set a handler
                signal.signal(number, end)
                changed.append(number)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of a command line; `options.run(options)` runs the command. Raises `UserError` for bad arguments."""
    parser = Parser(
        prog="msgrpo",
        description="Train small language models to act in text games with MS-GRPO, and evaluate, share and watch them.",
        epilog="Start with `msgrpo games`. `msgrpo COMMAND --help` explains a command.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands", parser_class=Parser)
    given = arguments[0] if arguments else ""
    if arguments and not given.startswith("-") and given not in COMMANDS:
        raise unknown("command", given, COMMANDS)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == given:
            room = import_module(f"{__name__}.{module}")
            add = getattr(room, f"add_{name}")
            command.description = " ".join((add.__doc__ or summary).split())
            add(command)
            command.set_defaults(run=getattr(room, f"run_{name}"))
            check_flags(arguments[1:], command)
    return parser.parse_args(arguments)
