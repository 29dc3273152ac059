"""The pieces of a board as SVG shapes around (0, 0), in units of one cell, with colours for light and dark themes."""

from __future__ import annotations

from html import escape

_ROUND = 'stroke-linecap="round" stroke-linejoin="round"'

_APPLE = (
    '<path d="M0-.2C.13-.32.4-.28.4.02C.4.28.17.43 0 .36C-.17.43-.4.28-.4.02C-.4-.28-.13-.32 0-.2Z" fill="{colour}"/>'
    f'<path d="M0-.19Q0-.33.06-.4" stroke="#8a5a2b" stroke-width=".06" {_ROUND} fill="none"/>'
    '<path d="M.05-.3Q.15-.45.31-.36Q.2-.22.05-.3Z" fill="#46a758"/>'
)
_SHINE = f'<path d="M-.26-.02Q-.25-.15-.14-.17" stroke="#fff" stroke-width=".06" {_ROUND} fill="none" opacity=".7"/>'
_CROSSES = f'<path d="M-.21-.02l.14.14m0-.14l-.14.14M.07-.02l.14.14m0-.14l-.14.14" stroke="#fff" stroke-width=".05" {_ROUND}/>'

_HOLE = (
    '<ellipse rx=".4" ry=".38" fill="var(--rim)"/><ellipse cy=".03" rx=".33" ry=".3" fill="#12395c"/>'
    f'<path d="M-.19.05Q-.1-.03 0 .05T.19.05" stroke="#5b9bd0" stroke-width=".045" {_ROUND} fill="none"/>'
)
_GOAL = (
    '<ellipse cy=".36" rx=".27" ry=".07" fill="#1b4b73" opacity=".25"/>'
    f'<path d="M-.17-.38V.36" stroke="#8a5a2b" stroke-width=".07" {_ROUND}/>'
    '<path d="M-.14-.37Q.03-.46.16-.36T.4-.33L.33-.2L.4-.03Q.27-.1.14-.05T-.14-.03Z" fill="#e5484d"/>'
)
_BANANA = (
    '<path d="M-.33-.27C-.3.1-.02.34.34.25C.4.23.4.17.35.14C.1.08-.12-.08-.2-.32C-.23-.39-.34-.36-.33-.27Z" fill="#f5c518"/>'
    f'<path d="M-.25-.22C-.18.02.02.18.3.2" stroke="#c99a06" stroke-width=".04" {_ROUND} fill="none"/>'
    '<circle cx="-.27" cy="-.33" r=".05" fill="#7a5a12"/>'
)
_FIRE = (
    '<path d="M0-.43C.08-.2.33-.1.33.12C.33.32.17.42 0 .42S-.33.32-.33.12C-.33-.02-.25-.1-.19-.2'
    'C-.16-.1-.1-.08-.07-.1C-.1-.22-.08-.34 0-.43Z" fill="#f76b15"/>'
    '<path d="M.01-.06C.05.05.17.1.17.22C.17.33.09.39 0 .39S-.17.33-.17.23C-.17.12-.03.1.01-.06Z" fill="#ffdc00"/>'
)
_SHAPES = {
    "hole": _HOLE,
    "goal": _GOAL,
    "apple": _APPLE.format(colour="#e5484d") + _SHINE,
    "poison apple": _APPLE.format(colour="#8e4ec6") + _CROSSES,
    "banana": _BANANA,
    "fire": _FIRE,
}

PENGUIN = (
    '<ellipse cy=".4" rx=".26" ry=".05" fill="#0b2942" opacity=".25"/>'
    f'<path d="M-.17.38L-.04.38L-.1.32ZM.17.38L.04.38L.1.32Z" fill="#f5a524" stroke="#f5a524" stroke-width=".06" {_ROUND}/>'
    '<path d="M0-.42C.2-.42.25-.25.27-.05Q.4.05.38.2Q.3.17.27.12C.27.3.17.37 0 .37S-.27.3-.27.12'
    'Q-.3.17-.38.2Q-.4.05-.27-.05C-.25-.25-.2-.42 0-.42Z" fill="#22303f" stroke="#5d7186" stroke-width=".015"/>'
    '<path d="M0-.12C.16-.3.24-.05.2.12C.18.27.1.32 0 .32S-.18.27-.2.12C-.24-.05-.16-.3 0-.12Z" fill="#fff"/>'
    '<circle cx="-.09" cy="-.2" r=".055" fill="#fff"/><circle cx=".09" cy="-.2" r=".055" fill="#fff"/>'
    '<circle cx="-.08" cy="-.2" r=".03" fill="#111"/><circle cx=".08" cy="-.2" r=".03" fill="#111"/>'
    f'<path d="M-.06-.13L.06-.13L0-.05Z" fill="#f5a524" stroke="#f5a524" stroke-width=".03" {_ROUND}/>'
)
"""The player of a game without snakes."""

FACES = (
    f'<g id="awake"><path d="M.4 0H.55L.62-.06M.55 0L.62.06" stroke="#e5484d" stroke-width=".05" {_ROUND} fill="none"/>'
    '<circle cx=".12" cy="-.19" r=".13" fill="#fff"/><circle cx=".12" cy=".19" r=".13" fill="#fff"/>'
    '<circle cx=".16" cy="-.19" r=".065" fill="#111"/><circle cx=".16" cy=".19" r=".065" fill="#111"/></g>'
    f'<path id="dead" d="M.04-.27l.16.16m0-.16l-.16.16M.04.11l.16.16m0-.16l-.16.16" stroke="#fff" stroke-width=".07" {_ROUND}/>'
)
"""A snake's face, looking along x: alive and dead."""

LIGHT = """
.ice{fill:#d6eaf8}.gleam{stroke:#fff;stroke-width:.035px;stroke-linecap:round;opacity:.75}
.field{fill:#eef4e8}.check{fill:#e3edd9}.tile{fill:#8b8d98}.letter{font-size:.6px;fill:#fff;text-anchor:middle}
.body,.belly{fill:none;stroke-linecap:round;stroke-linejoin:round}.body{stroke-width:.74px}
.belly{stroke-width:.2px;stroke:#fff;opacity:.35}
.body.you{stroke:#30a46c}.head.you{fill:#218358}.body.opponent{stroke:#7c8cc4}.head.opponent{fill:#5563a0}
:root{--rim:#9cc6e6}
"""
DARK = """:root{--rim:#5b86ab}
.ice{fill:#24415c}.gleam{opacity:.16}.field{fill:#1c2a20}.check{fill:#213226}"""

STYLE = f"{LIGHT}@media (prefers-color-scheme:dark){{{DARK}}}\n"
"""Light or dark, by the theme of the reader's system."""


def shape(name: str, symbol: str) -> str:
    """The shape of a piece by its name; its symbol on a tile if there is no drawing.

    The tile has its colours as attributes: inside `<use>`, the nested selectors of a page do not match.
    """
    look = 'class="letter" font-size=".6" fill="#fff" text-anchor="middle" y=".2"'
    tile = '<rect fill="#8b8d98" x="-.4" y="-.4" width=".8" height=".8" rx=".16"/>'
    return _SHAPES.get(name, f"{tile}<text {look}>{escape(symbol)}</text>")
