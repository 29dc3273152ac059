"""Storage: episodes and steps as Parquet, the folders of runs, and atomic file writes."""
