"""The look of the page and its script. Everything is inline, so that the page loads nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
import names

from msgrpo_hub.games import GAMES
from msgrpo_hub.rendering.replay import replay_assets

HERE = Path(__file__).parent
REPLAY = replay_assets([*GAMES, *(f"{name}:other-symbols" for name in GAMES)], dark=".dark")
"""Script, style and shapes of replays: of every game, with its own symbols and with others."""


def theme() -> gr.themes.Base:
    """A quiet theme: system fonts and small paddings. The colours are variables of style.css."""
    sans = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif"]
    mono = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
    made = gr.themes.Base(font=sans, font_mono=mono, radius_size="sm", spacing_size="sm", text_size="md")
    light_and_dark = {
        "body_background_fill": "var(--paper)",
        "body_text_color": "var(--ink)",
        "body_text_color_subdued": "var(--faint)",
        "background_fill_primary": "var(--card)",
        "background_fill_secondary": "var(--soft)",
        "border_color_primary": "var(--line)",
        "block_background_fill": "transparent",
        "block_border_color": "transparent",
        "block_label_text_color": "var(--faint)",
        "block_title_text_color": "var(--faint)",
        "block_info_text_color": "var(--faint)",
        "input_background_fill": "var(--card)",
        "input_border_color": "var(--line)",
        "input_border_color_focus": "var(--accent)",
        "input_placeholder_color": "var(--faint)",
        "button_primary_background_fill": "var(--accent)",
        "button_primary_background_fill_hover": "var(--accent-strong)",
        "button_primary_text_color": "var(--on-accent)",
        "button_secondary_background_fill": "var(--soft)",
        "button_secondary_text_color": "var(--ink)",
        "button_secondary_border_color": "var(--line)",
        "slider_color": "var(--accent)",
        "link_text_color": "var(--accent)",
        "table_border_color": "var(--line)",
    }
    both = {name + dark: value for name, value in light_and_dark.items() for dark in ("", "_dark")}
    return made.set(block_border_width="0px", block_padding="0px", layout_gap="12px", **both)


def head() -> str:
    """The styles and the script of the page."""
    # a heading above the first game of each group in a list of games
    first = {heading: f'.games-list [aria-label="{names.game(ids[0])}"]' for heading, ids in names.groups().items()}
    headings = "".join(f'{at}{{margin-top:1.9rem!important}}{at}::before{{content:"{each}"}}' for each, at in first.items())
    style, page, game = ((HERE / name).read_text(encoding="utf-8") for name in ("style.css", "page.js", "game.js"))
    used = "mountReplay, mountTable, mountGame, mountExamples, changed, rolled, running, stopping, wanted"
    return (
        f"<style>{REPLAY['style']}{style}{headings}</style>"
        f"<script>window.msgrpo = (() => {{{REPLAY['script']}{page}{game}return {{ {used} }};}})();</script>"
    )
