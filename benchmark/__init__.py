"""The benchmark: definitions and results. Run it from the root of the clone."""
