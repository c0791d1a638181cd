"""The element types of PyTorch and those of NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import torch

from dnnl.errors import Unimplemented

NUMPY: Mapping[torch.dtype, np.dtype] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.int64: np.dtype(np.int64),
    torch.int32: np.dtype(np.int32),
    torch.int16: np.dtype(np.int16),
    torch.int8: np.dtype(np.int8),
    torch.uint8: np.dtype(np.uint8),
    torch.bool: np.dtype(np.bool_),
}
"""The element types that graphs take."""

TORCH: Mapping[np.dtype, torch.dtype] = {own: kind for kind, own in NUMPY.items()}
"""The same elements in PyTorch."""


def numpy_type(dtype: torch.dtype) -> np.dtype:
    """The same elements in NumPy; raises Unimplemented for those that graphs do not take."""
    found = NUMPY.get(dtype)
    if found is None:
        raise Unimplemented(f"elements of {dtype}: graphs take {', '.join(map(str, NUMPY))}")
    return found
