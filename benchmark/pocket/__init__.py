"""Builds the built-in base: `python -m benchmark.pocket.build OUTPUT_DIR`."""
