"""The stored runs of the benchmark: one archive per player, `<player>.zip` in a folder of them, by default results/."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msgrpo_hub.storage.run_files import LOCK

ARCHIVES = Path(__file__).parent / "results"


def archive_of(folder: str, archives: Path = ARCHIVES) -> Path:
    """The archive of a player's folder."""
    return archives / f"{folder}.zip"


@contextmanager
def unpacked(archives: Path = ARCHIVES) -> Iterator[Path]:
    """A temporary folder with all stored runs, as `msgrpo eval` writes them."""
    with TemporaryDirectory() as folder:
        for archive in sorted(archives.glob("*.zip")):
            with zipfile.ZipFile(archive) as file:
                file.extractall(Path(folder) / archive.stem)
        yield Path(folder)


def pack(folder: Path, archives: Path = ARCHIVES) -> None:
    """Writes the archives of all players in a folder. An archive with the same files is not touched."""
    for player in sorted(folder.iterdir()):
        paths = [path for path in sorted(player.rglob("*")) if path.is_file() and path.name != LOCK]
        files = {path.relative_to(player).as_posix(): path.read_bytes() for path in paths}
        archive = archive_of(player.name, archives)
        if archive.exists():
            with zipfile.ZipFile(archive) as old:
                if {name: old.read(name) for name in old.namelist()} == files:
                    continue
        archive.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as new:
            for name, content in files.items():
                new.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
