"""By which results say which model they are of."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from dnnl import lazy
from dnnl.framework.saved_file import MAGIC

if TYPE_CHECKING:
    from dnnl.onnx import external_data
else:
    # A saved model is scored without the package onnx.
    external_data = lazy.Module("dnnl.onnx.external_data")


def is_saved(path: Path) -> bool:
    """Whether a file is that of a saved model, which has a precision of its own."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def model_digest(path: Path) -> str:
    """SHA-256 of the file of a model, and of those in which an ONNX file has tensors."""
    others = () if is_saved(path) else external_data.external_files(path)
    if not others:
        return _digest(path)
    joined = "".join(_digest(file) for file in (path, *others))
    return hashlib.sha256(joined.encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
