"""Finds the files of a data set."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from dnnl.errors import InvalidArguments

KINDS = {
    ".parquet": "parquet",
    ".npy": "npy",
    ".png": "images",
    ".jpg": "images",
    ".jpeg": "images",
}
"""Kinds of files by suffix, in lower case."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Files of one kind: ``files`` are their paths below ``root``, sorted, with slashes.

    ``digest`` covers their names, sizes and modification times. ``others`` are files with other
    suffixes, which do not belong to the data set.
    """

    kind: str
    root: Path
    files: tuple[str, ...]
    digest: str
    others: tuple[str, ...] = ()


def find(path: Path) -> Dataset:
    """The data set in a file, or in a folder and its subfolders.

    Names that begin with a dot or an underscore (temporary files, metadata) are ignored.

    Raises InvalidArguments if there are no files, or files of several kinds.
    """
    known = ", ".join(KINDS)
    if path.is_file():
        if path.suffix.lower() not in KINDS:
            raise InvalidArguments("DATASET", str(path), f"has none of the endings {known}")
        return _dataset(path.parent, [path.name], [])
    if not path.is_dir():
        raise InvalidArguments("DATASET", str(path), "there is no such file or folder")
    found, others = list[str](), list[str]()
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        for name in names:
            if not _is_hidden(name):
                place = Path(folder, name).relative_to(path).as_posix()
                (found if Path(name).suffix.lower() in KINDS else others).append(place)
    if not found:
        raise InvalidArguments("DATASET", str(path), f"has no files that end in {known}")
    return _dataset(path, sorted(found), sorted(others))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _dataset(root: Path, files: list[str], others: list[str]) -> Dataset:
    by_kind = {KINDS[Path(name).suffix.lower()]: name for name in files}
    if len(by_kind) > 1:
        examples = " and ".join(by_kind.values())
        rule = f"has files of several kinds, such as {examples}"
        raise InvalidArguments("DATASET", str(root), rule, "give a folder for each")
    seen = hashlib.sha256()
    for name in files:
        state = (root / name).stat()
        seen.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return Dataset(next(iter(by_kind)), root, tuple(files), seen.hexdigest(), tuple(others))
