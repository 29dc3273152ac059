"""How the page looks, and the script that it carries: all inline, so that it asks for nothing from outside."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from msgrpo_hub.games import GAMES
from msgrpo_hub.rendering import DARK, LIGHT, script, shapes

HERE = Path(__file__).parent


def theme() -> gr.themes.Base:
    """A quiet theme: fonts of the reader's machine, small paddings; colours are the variables of style.css."""
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
    """Styles and script of the page."""
    boards = f".board{{{LIGHT.replace(':root', '&')}}}.dark .board{{{DARK.replace(':root', '&')}}}"
    code = script() + "".join((HERE / name).read_text(encoding="utf-8") for name in ("film.js", "page.js"))
    return (
        f"<style>{(HERE / 'style.css').read_text(encoding='utf-8')}{boards}</style>"
        f"<script>window.msgrpo = (() => {{{code}return {{ mount, sortable, playing }};}})();</script>"
    )


def all_shapes() -> str:
    """Every shape that a board may use, once."""
    ids = [*GAMES, *(f"{name}:other-symbols" for name in GAMES)]
    drawn = "".join(f'<g id="{name}">{shape}</g>' for name, shape in shapes(ids).items())
    return f'<svg class="shapes" width="0" height="0" aria-hidden="true" focusable="false"><defs>{drawn}</defs></svg>'


def masthead(title: str) -> str:
    return (
        f"<header><h1>{title}</h1><p>Language models of less than a million parameters, trained by "
        '<a href="https://arxiv.org/abs/2508.10839">multi-step group-relative policy optimisation</a> to play games that they '
        "read as text. Watch them, compare them, beat them, and change what they are told.</p></header>"
    )
