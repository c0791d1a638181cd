"""Arrays out of files: ``.npz`` by name, one of ``.npy`` or ``.pb``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import ModelError
from dnnl.onnx.read import read_tensor


def read_arrays(path: Path, single: str) -> dict[str, NDArray[np.generic]]:
    """The arrays of a file by name; that of a file of one tensor is called ``single``.

    Raises ModelError for a file that cannot be read.
    """
    if path.suffix != ".npz":
        return {single: read_tensor(path)}
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file") from error
    except (ValueError, OSError, EOFError) as error:
        raise ModelError(f"{path}: not a NumPy archive, or truncated ({error})") from error


def checked(name: str, array: NDArray[np.generic], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """An array of finite numbers of a shape, in float64; InvalidArguments otherwise."""
    if not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise InvalidArguments(name, str(array.dtype), "expected an array of numbers")
    if array.shape != shape:
        raise InvalidArguments(name, array.shape, f"expected the shape {shape}")
    values = np.asarray(array, np.float64)
    if not np.isfinite(values).all():
        raise InvalidArguments(name, "inf or nan", "expected finite numbers")
    return values
