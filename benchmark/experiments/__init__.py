"""Experiments: one folder per question, with its configuration, its raw results, a figure and findings."""
