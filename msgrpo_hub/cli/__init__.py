"""Floor 7, the command line: the only place that parses arguments or prints."""

from __future__ import annotations

import os
import sys
import warnings

from msgrpo_hub import __version__
from msgrpo_hub.cli.evaluation import evaluation_commands
from msgrpo_hub.cli.flags import Parser, check_flags
from msgrpo_hub.cli.hub import push_command
from msgrpo_hub.cli.play import games_command, play_command
from msgrpo_hub.cli.results import export_command, leaderboard_command
from msgrpo_hub.cli.space import space_command
from msgrpo_hub.cli.training import train_command
from msgrpo_hub.errors import UserError


def main(arguments: list[str] | None = None) -> None:
    """The `msgrpo` command. Exit status 0: done; 2: input that a user can mend; 130: interrupted."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", category=FutureWarning)
    given = sys.argv[1:] if arguments is None else arguments
    try:
        parser, commands = make_parser()
        if given and given[0] in commands:
            check_flags(given[1:], commands[given[0]])
        options = parser.parse_args(given)
        options.run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        safe = "every finished update is safe, go on with --resume" if given[:1] == ["train"] else "what is finished is kept"
        print(f"interrupted; {safe}", file=sys.stderr)
        sys.exit(130)


def make_parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser, and the parser of each command."""
    parser = Parser(prog="msgrpo", description="Small language models that act: MS-GRPO for text games.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    games_command(commands)
    play_command(commands)
    train_command(commands)
    evaluation_commands(commands)
    push_command(commands)
    leaderboard_command(commands)
    export_command(commands)
    space_command(commands)
    return parser, dict(commands.choices)
