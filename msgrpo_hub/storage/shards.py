"""Parquet files of episodes: writer, reader, and the shards of a dataset or a training run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from msgrpo_hub.errors import UserError
from msgrpo_hub.storage.schema import FORMAT, matches

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


def read_table(path: Path, config: str) -> pa.Table:
    """The table of a file of episodes (`default`) or of steps (`steps`).

    Raises `UserError` if the file is missing, is not Parquet, has other columns, or is too large when unpacked.
    """
    try:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            if not matches(file.schema_arrow, config):
                raise UserError(f"it has other columns: expected those of {FORMAT}, as this package writes them")
            return read_bounded(file, LARGEST)
    except UserError as error:
        raise UserError(f"{str(path)!r}: {error}") from error
    except (OSError, pa.ArrowException) as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"{str(path)!r} cannot be read ({why}): expected Parquet in the format {FORMAT}") from error


def read_bounded(file: pq.ParquetFile, largest: int) -> pa.Table:
    """Reads all rows of a file in batches, because repeated values are compressed: only the unpacked rows tell their size.

    Raises `UserError` if they have more than `largest` bytes.
    """
    about = file.metadata
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(about.num_columns)]
    size = sum(max(chunk.total_uncompressed_size, chunk.num_values) for chunk in chunks)
    most_of_a_row = max((chunk.total_uncompressed_size for chunk in chunks), default=0)
    batches = []
    if size <= largest:
        size = 0
        for batch in file.iter_batches(batch_size=min(max(_AT_ONCE // max(most_of_a_row, 1), 1), ROWS)):
            size += batch.nbytes
            batches.append(batch)
            if size > largest:
                break
    if size > largest:
        raise UserError(f"it unpacks to more than {largest:,} bytes: expected a smaller file")
    return pa.Table.from_batches(batches, schema=file.schema_arrow)


def shards(folder: Path) -> list[tuple[Path, Path]]:
    """The shards of a dataset or of a run, as pairs of episodes and steps, sorted by name.

    A killed run may leave steps without episodes; these are ignored.
    """
    root = next((root for root in (folder, folder / "rollouts") if (root / "default").is_dir()), folder)
    return [(path, root / "steps" / path.name) for path in sorted(root.glob("default/*.parquet"))]


_UPDATES = re.compile(r"train-(?P<run>[0-9a-f]{16}-)?(?P<first>[0-9]{5,7})(?:-(?P<last>[0-9]{5,7})-[0-9a-f]{8})?")
"""The name of a shard of one update, or of a published shard of several."""


def missing_updates(folder: Path) -> list[int]:
    """The updates of a training run without a shard below a folder, up to the last one with a shard or in `metrics.jsonl`."""
    metrics = folder / "metrics.jsonl"
    known = metrics.read_bytes().count(b"\n") if metrics.is_file() else 0
    updates: dict[str, set[int]] = {}
    for heads, _ in shards(folder):
        if name := _UPDATES.fullmatch(heads.stem):
            updates.setdefault(name["run"] or "", set()).update(range(int(name["first"]), int(name["last"] or name["first"]) + 1))
    return sorted(set().union(*({*range(1, max(known, *there) + 1)} - there for there in updates.values())))


def read_shard(heads: Path, steps: Path) -> tuple[pa.Table, pa.Table]:
    """Both tables of a shard. Errors as for `read_table`."""
    return read_table(heads, "default"), read_table(steps, "steps")
