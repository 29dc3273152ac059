"""Fixtures of all tests."""

from browser import chromium, open_page

__all__ = ["chromium", "open_page"]
