"""Fixtures of all tests."""

from tests.browser import chromium, open_page

__all__ = ["chromium", "open_page"]
