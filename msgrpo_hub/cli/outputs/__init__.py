"""What `--json` prints, as types: with the records of other rooms, the one source of the JSON Schemas (`schemas.py`)."""
