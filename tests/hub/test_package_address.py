"""Cards say where the package is developed once its metadata do."""

from __future__ import annotations

from email.message import Message

import pytest

from msgrpo_hub.hub import cards


@pytest.mark.parametrize(
    ("urls", "line"),
    [
        ([], "pip install msgrpo-hub\n"),
        (["Source, https://example.org/a", "Docs, https://example.org/b"], "pip install msgrpo-hub  # https://example.org/a\n"),
    ],
)
def test_the_install_line_of_a_card_has_the_first_address_of_the_metadata(
    urls: list[str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Message()
    for url in urls:
        said["Project-URL"] = url
    monkeypatch.setattr(cards, "metadata", lambda _: said)
    monkeypatch.setattr(cards, "package_address", cards.package_address.__wrapped__)
    values = dict.fromkeys(("front_matter", "introduction", "repo_id", "version", "rest", "title"), "")
    assert line in cards.render("base.md.jinja", values)
