"""Fixtures of these tests."""

from reported import corridor, report_folder, report_results

__all__ = ["corridor", "report_folder", "report_results"]
