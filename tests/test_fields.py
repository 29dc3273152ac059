"""Variants by name: built-in ones, and own code only if the name was typed on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import resolve


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown sampler 'unform': did you mean 'uniform'"):
        resolve("sampler", "unform", {"uniform": 1})


def test_a_module_of_the_current_folder_is_imported_and_a_class_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_choice.py").write_text("class Three:\n    value = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert resolve("number", "own_choice:Three", {}, may_import=True).value == 3  # type: ignore[attr-defined]


def test_a_name_that_was_read_and_not_typed_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_choice.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="would import code"):
        resolve("credit", "evil_choice:credit", {"whole-episode": 1})
    assert "evil_choice" not in sys.modules


@pytest.mark.parametrize("name", ["no_such_module:x", "math:no_such_name", ":", "math:", ":x"])
def test_a_module_or_name_that_does_not_exist_is_one_line(name: str) -> None:
    with pytest.raises(UserError, match=r"cannot import the credit .* expected module:object"):
        resolve("credit", name, {}, may_import=True)
