"""Kills trainings, evaluations and pushes at random moments, repeats their commands, and compares their files."""
