"""Fixtures of these tests."""

from tests.rendering.reported import corridor, report_folder, report_results

__all__ = ["corridor", "report_folder", "report_results"]
