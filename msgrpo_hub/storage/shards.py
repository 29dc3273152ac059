"""Parquet files of episodes: writer, reader, and the shards of a dataset or a training run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from msgrpo_hub.errors import UserError
from msgrpo_hub.storage.schema import FORMAT, SCHEMAS

ROWS = 1000
"""Rows per row group: small groups suit the dataset viewer of the Hub and streaming."""

LARGEST = 4 * 1024**3
"""Limit on the unpacked size of a file, in bytes."""

_AT_ONCE = 2**26
"""Bytes that a column of a batch may unpack to, if every row has its longest value."""


def write_table(table: pa.Table, path: Path) -> None:
    """Writes a table; equal content gives equal bytes."""
    with open_shard(path, table.schema) as file:
        file.write_table(table, row_group_size=ROWS)


@contextmanager
def open_shard(path: Path, columns: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """A writer for a file in parts. The file is opened here because Arrow would parse a path such as `lake:1/x` as a URL."""
    with path.open("wb") as file, pq.ParquetWriter(file, columns, compression="zstd", write_page_index=True) as writer:
        yield writer


def read_table(path: Path, config: str, most_rows: float = math.inf) -> pa.Table:
    """The table of a file of episodes (`default`) or `steps`. Raises `UserError` for another or too large a file."""
    try:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            columns, known = file.schema_arrow, FORMAT.encode()
            if not columns.equals(SCHEMAS[config]) or (columns.metadata or {}).get(b"format", known) != known:
                raise UserError(f"it has other columns: expected those of {FORMAT}, as this package writes them")
            if file.metadata.num_rows > most_rows:
                raise UserError(f"it has {file.metadata.num_rows:,} rows: expected at most {most_rows:,}")
            table = _read_bounded(file)
        table.validate(full=True)
    except UserError as error:
        raise UserError(f"{str(path)!r}: {error}") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"{str(path)!r} cannot be read ({why}): expected Parquet in the format {FORMAT}") from error
    return table


def _read_bounded(file: pq.ParquetFile) -> pa.Table:
    """Reads all rows in batches: only unpacked rows tell their size. Raises `UserError` if they exceed `LARGEST` bytes."""
    about = file.metadata
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    every = [group.column(number) for group in groups for number in range(about.num_columns)]
    chunks = [max(chunk.total_uncompressed_size, 4 * chunk.num_values) for chunk in every]  # one row may repeat a value in a list
    too_large = UserError(f"it unpacks to more than {LARGEST:,} bytes: expected a smaller file")
    if sum(chunks) > LARGEST:
        raise too_large
    batches, size = [], 0
    for batch in file.iter_batches(batch_size=min(max(_AT_ONCE // max([1, *chunks]), 1), ROWS)):
        size += batch.nbytes
        if size > LARGEST:
            raise too_large
        batches.append(batch)
    return pa.Table.from_batches(batches, schema=file.schema_arrow)


def shards(folder: Path) -> list[tuple[Path, Path]]:
    """The shards of a dataset or a run as pairs (episodes, steps) by name. Steps alone, of a killed run, are ignored."""
    root = next((root for root in (folder, folder / "rollouts") if (root / "default").is_dir()), folder)
    return [(path, root / "steps" / path.name) for path in sorted(root.glob("default/*.parquet"))]
