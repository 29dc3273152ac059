"""The command line. No other package parses arguments or prints."""

from __future__ import annotations

import argparse
import errno
import io
import logging
import os
import signal
import sys
import time
import warnings
from functools import partial
from importlib import import_module

from msgrpo_hub import __version__
from msgrpo_hub.cli.flags import Parser
from msgrpo_hub.errors import UserError, unknown

COMMANDS = {
    "games": ("play", "List the games."),
    "play": ("play", "Play one episode and draw it in the terminal."),
    "train": ("training", "Train a LoRA adapter with MS-GRPO."),
    "curves": ("evaluation", "Draw the learning curves of several runs together, with intervals over training seeds."),
    "eval": ("evaluation", "Evaluate players on the fixed episodes of a suite."),
    "compare": ("evaluation", "Compare two evaluated players, episode by episode."),
    "verify": ("evaluation", "Replay stored episodes and check every record against the rules."),
    "report": ("evaluation", "Write one HTML page with the tables, plots and replays of evaluated players."),
    "push": ("hub", "Push an adapter, rollouts, results, the built-in base, the demo or a game to the Hub."),
    "jobs": ("jobs", "Train or evaluate on the Hub's machines."),
    "leaderboard": ("evaluation", "Rank published results after replaying every run."),
    "export": ("evaluation", "Write published results for model cards: model-index, .eval_results."),
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
        if getattr(sys, name) is None:  # closed by the shell, as in `msgrpo games 2>&-`
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows only ASCII gets "?" for a line of a table
    try:
        end = partial(_end, [])
        for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):  # Windows has no SIGHUP
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # not ignored, as by `nohup`
                signal.signal(number, end)
        options = parse(given)
        for game in getattr(options, "imported", None) or ():
            from msgrpo_hub.games.registry import import_game

            import_game(game)
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
    except OSError as error:  # of a disk, or of standard output
        from msgrpo_hub.storage.files import AGAIN, DISK

        no_folder = error.filename and error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)
        if not no_folder and error.errno not in (*DISK, errno.EPIPE):
            raise
        remedy = "name another folder" if no_folder else f"make room or allow it, then {AGAIN}"
        if error.errno != errno.EPIPE:  # a reader such as `head` may close the pipe
            file = f"use {str(error.filename)!r}" if error.filename else "write to a file or standard output"
            print(f"error: cannot {file} ({os.strerror(error.errno or 0)}): {remedy}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:  # Python would report it again at its exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)


def _end(signals: list[float], number: int, _: object) -> None:
    """Ends a command as Ctrl-C does. A second Ctrl-C within a second is the same one; a later one ends the clean-up too."""
    signals.append(time.monotonic())
    if len(signals) == 1:
        raise KeyboardInterrupt(signal.Signals(number))
    if signals[-1] - signals[0] > 1:
        os._exit(128 + number)


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
            if name not in ("games", "play", "jobs"):  # these have a game of their own, or none of this machine
                text = "a game of your own, which results and suites name by its id"
                command.add_argument("--import", dest="imported", action="append", metavar="MODULE:OBJECT", help=text)
            command.set_defaults(run=getattr(room, f"run_{name}"))
    return parser.parse_args(arguments)
