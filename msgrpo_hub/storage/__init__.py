"""Storage: episodes and steps as Parquet, the folders of runs, and files that are written whole or not at all."""
