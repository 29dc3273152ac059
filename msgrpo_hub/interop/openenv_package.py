"""A game as an OpenEnv environment package: a Docker Space with only the server and the rules."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from msgrpo_hub import __version__
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import FURTHER, GAMES, base_game, make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.hub.spaces import copy
from msgrpo_hub.hub.uploading import Pushed, Target, Where, check_repo_id, upload

_PACKAGE = Path(str(files("msgrpo_hub")))
_TEMPLATES = _PACKAGE / "interop" / "environment"

ROOMS = ("agent", "games")
FILES = (
    *("__init__.py", "episode.py", "errors.py", "fields.py", "rollout.py"),
    *("interop/__init__.py", "interop/episodes.py", "interop/openenv_server.py"),
)
REQUIREMENTS = ("gymnasium>=1.0", "numpy>=1.26", "openenv>=0.10,<0.11")


def push_env(repo_id: str, *, game: str, **where: Unpack[Where]) -> Pushed:
    """Pushes a game as an environment in one commit. Pushing the same version and game again makes no commit.

    Args:
        game: the id of a game of this package, or of a variant.
        where: as for `Target`; a Space runs its branch main.

    Raises `UserError` if the game is unknown or not of this package, or the Hub refuses, for example without a paid plan.
    """
    target = Target(repo_id=repo_id, kind="space", **where)
    with TemporaryDirectory() as folder:
        stage_env(repo_id, Path(folder), game=game)
        message = f"{game} of msgrpo_hub {__version__} as an OpenEnv environment"
        return upload(Path(folder), target, message=message, marker="openenv.yaml", create={"space_sdk": "docker"})


def stage_env(repo_id: str, folder: Path, *, game: str) -> None:
    """Writes an environment package into a folder, where `python -m server.app` runs it too. Errors as for `push_env`."""
    check_repo_id(repo_id)
    made = make_game(game)
    if base_game(made).id not in {*GAMES, *FURTHER}:
        raise UserError(f"{game} has rules of another package: expected a game of msgrpo_hub (`msgrpo games` lists them)")
    for room in ROOMS:
        copy(_PACKAGE / room, folder / "msgrpo_hub" / room, (".py",))
    values = {
        "game_id": game,
        "name": re.sub(r"\W+", "_", game).lower(),
        "version": __version__,
        "requirements": REQUIREMENTS,
        "address": "https://" + re.sub(r"[^a-z0-9]+", "-", repo_id.lower()) + ".hf.space",
        "return_range": return_range(made),
        **{name: getattr(made, name) for name in ("actions", "horizon", "instructions", "reward_range", "rules")},
    }
    loader = FileSystemLoader(_TEMPLATES)
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    texts = {f"msgrpo_hub/{name}": (_PACKAGE / name).read_text(encoding="utf-8") for name in FILES}
    for path in sorted(_TEMPLATES.rglob("*.jinja")):
        name = path.relative_to(_TEMPLATES).as_posix()
        texts[name.removesuffix(".jinja")] = environment.get_template(name).render(values)
    for name, text in {**texts, "server/__init__.py": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
