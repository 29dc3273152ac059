"""Hostile bases: their code is not run, and oversized files are not downloaded."""

from __future__ import annotations

import pytest

from tests.hub.hostile import BASES, CODE, CONFIG, INDEX, Files, downloaded, edit, open_model, put_here
from tests.hub_server.lanes import Loopback
from tests.hub_server.store import Blob


@pytest.mark.parametrize("attack", BASES)
def test_a_hostile_base_is_refused(loopback: Loopback, sound_base: Files, attack: str) -> None:
    change, words, late = BASES[attack]
    files = dict(sound_base)
    change(files)
    message, ran = loopback.owner.call(open_model, put_here(loopback, files))
    assert words in message
    assert (message.isprintable(), ran) == (True, False)
    assert downloaded(loopback) <= {CONFIG, "tokenizer_config.json", INDEX} | (set(sound_base) if late - {INDEX} else set())


def test_code_beside_an_architecture_that_the_library_knows_is_not_run(loopback: Loopback, sound_base: Files) -> None:
    """Many sound models still have `auto_map`: the library's own code serves."""
    files = dict(sound_base) | {"evil.py": CODE}
    edit(CONFIG, auto_map={"AutoModelForCausalLM": "evil.M", "AutoConfig": "evil.C"})(files)
    edit("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]})(files)
    assert loopback.owner.call(open_model, put_here(loopback, files)) == ("loaded", False)
    assert "evil.py" not in downloaded(loopback)


class Huge(bytes):
    """A file of which the Hub says that it is larger than any disk."""

    def __len__(self) -> int:
        return 10**12


@pytest.mark.parametrize(
    ("name", "limit"),
    [("model.safetensors", "64,000"), ("tokenizer.json", "64"), ("chat_template.jinja", "1"), (CONFIG, "1")],
)
def test_an_oversized_file_is_not_downloaded(loopback: Loopback, sound_base: Files, name: str, limit: str) -> None:
    repo = put_here(loopback, sound_base)
    loopback.stored(repo).head.files[name] = Blob(content=Huge(b"{}"))  # type: ignore[index]
    message, _ = loopback.owner.call(open_model, repo)
    assert f"{name} would be 1,000,000 MB; expected at most {limit} MB" in message
    assert not {name, "model.safetensors"} & downloaded(loopback)
