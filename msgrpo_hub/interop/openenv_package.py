"""A game as an OpenEnv environment package: a Docker Space with a server, the rules, and nothing else of this package."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from msgrpo_hub import __version__
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import FURTHER, GAMES, base_game, make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.hub.spaces import copy, push_staged
from msgrpo_hub.hub.uploading import Pushed, Target, check_repo_id
from msgrpo_hub.interop.session import environment_name

_PACKAGE = Path(str(files("msgrpo_hub")))
_TEMPLATES = _PACKAGE / "interop" / "environment"

ROOMS = ("agent", "games")
FILES = (
    *("__init__.py", "choices.py", "episode.py", "errors.py", "fields.py", "rollout.py"),
    *("interop/__init__.py", "interop/openenv_server.py", "interop/session.py"),
)
"""What the server needs of this package."""
REQUIREMENTS = ("gymnasium>=1.0", "numpy>=1.26", "openenv>=0.10,<0.11")
"""What it needs of others, as in pyproject.toml."""


def push_env(
    repo_id: str,
    *,
    game: str,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    create_pr: bool = False,
) -> Pushed:
    """Pushes a game as an environment in one commit. Pushing the same version and game again makes no commit.

    Args:
        repo_id: `USER/NAME` of the Space; created if missing.
        game: the id of a game of this package, or of a variant.
        private: visibility of a new Space; None uses the Hub's setting. An existing Space must agree.
        revision: a branch; None is main, the branch that runs.
        token: None uses the token of `hf auth login` or HF_TOKEN.
        create_pr: open a pull request instead.

    Raises:
        UserError: the game is unknown or not of this package, or the Hub refuses. If it asks for a paid plan (402), the
            message says where else the environment runs.
    """
    target = Target(repo_id=repo_id, kind="space", private=private, revision=revision, token=token, create_pr=create_pr)
    with TemporaryDirectory() as folder:
        stage_env(repo_id, Path(folder), game=game)
        message = f"{game} of msgrpo_hub {__version__} as an OpenEnv environment"
        return push_staged(Path(folder), target, message, "openenv.yaml", {"space_sdk": "docker"})


def stage_env(repo_id: str, folder: Path, *, game: str) -> None:
    """Writes an environment package into a folder, where `python -m server.app` runs it too.

    Args:
        repo_id: `USER/NAME` of the Space, for its address in the README.
        folder: is filled.
        game: the id of a game of this package, or of a variant.

    Raises:
        UserError: the game is unknown, or not of this package.
    """
    check_repo_id(repo_id)
    check_own(game)
    for room in ROOMS:
        copy(_PACKAGE / room, folder / "msgrpo_hub" / room, (".py",))
    for name in FILES:
        place = folder / "msgrpo_hub" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((_PACKAGE / name).read_bytes())
    for name, text in rendered(repo_id, game).items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    (folder / "server" / "__init__.py").write_text("", encoding="utf-8")


def check_own(game_id: str) -> None:
    """Raises `UserError` for a game whose rules a package of its own would have to bring."""
    core = base_game(make_game(game_id))
    if core.id not in {*GAMES, *FURTHER}:
        raise UserError(
            f"{game_id} has rules of another package, which the environment would not have: expected a game of msgrpo_hub "
            "(`msgrpo games` lists them)"
        )


def rendered(repo_id: str, game_id: str) -> dict[str, str]:
    """Name → text of the files that are made from templates."""
    game = make_game(game_id)
    values = {
        "game_id": game_id,
        "name": environment_name(game_id),
        "version": __version__,
        "requirements": REQUIREMENTS,
        "address": "https://" + re.sub(r"[^a-z0-9]+", "-", repo_id.lower()) + ".hf.space",
        "return_range": return_range(game),
        **{name: getattr(game, name) for name in ("actions", "horizon", "instructions", "reward_range", "rules")},
    }
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    names = sorted(path.relative_to(_TEMPLATES).as_posix() for path in _TEMPLATES.rglob("*.jinja"))
    return {name.removesuffix(".jinja"): environment.get_template(name).render(values) for name in names}
