"""The digest that identifies the model of results."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dnnl.framework.saved_file import MAGIC
from dnnl.onnx.external_data import external_files


def is_saved(path: Path) -> bool:
    """Whether a file is a saved model of `Model.save`, and not ONNX."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def model_digest(path: Path) -> str:
    """The SHA-256 of a model file, including the external data of ONNX."""
    others = () if is_saved(path) else external_files(path)
    if not others:
        return _digest(path)
    joined = "".join(_digest(file) for file in (path, *others))
    return hashlib.sha256(joined.encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
