"""The benchmark: definitions, and what was measured. Run from the root of the clone."""
