"""Rendering: boards, replays, charts and the HTML report."""
