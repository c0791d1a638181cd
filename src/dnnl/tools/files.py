"""Output files of a command line: checks that they can be written before long work begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dnnl.errors import InvalidArguments


def check_place(option: str, path: Path) -> None:
    """Raise InvalidArguments, naming ``option``, if ``path`` cannot be written."""
    rule = ""
    if path.is_dir():
        rule = "is a folder"
    elif not path.parent.is_dir():
        rule = f"there is no folder {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        rule = "cannot be written"
    if rule:
        raise InvalidArguments(option, str(path), rule)


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Turn an OSError inside the context into InvalidArguments that names the option."""
    try:
        yield
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise InvalidArguments(option, str(path), rule) from error
