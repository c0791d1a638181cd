"""Constants in the layouts of their readers, by NumPy where that beats building a kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dnnl.lowering.facts import Prepared
from dnnl.runtime.elements import plain_view, put_elements
from dnnl.runtime.memory import Memory
from dnnl.types.cook_toom import cook_toom
from dnnl.types.encoding import Winograd
from dnnl.types.kinds import FormatKind
from dnnl.types.shaped_layout import same_places

_FEW = 1 << 25
"""Bytes that NumPy writes in 20 ms, the time to build a reorder kernel."""

_BYTE = 8  # bits


def is_moved_by_numpy(key: Prepared, nbytes: int) -> bool:
    """Whether NumPy writes constants like this one, ``nbytes`` altogether."""
    if same_places(key.source, key.desc):
        return True
    return nbytes <= _FEW and (_is_permutation(key) or _is_transform(key))


def _is_permutation(key: Prepared) -> bool:
    """Whether elements are only permuted, and NumPy can address them by strides."""
    source, wanted = key.source, key.desc
    return (
        source.is_plain
        and source.data_type is wanted.data_type
        and source.data_type.bits >= _BYTE
        and wanted.format_kind is FormatKind.blocked
        and wanted.compensation is None
    )


def _is_transform(key: Prepared) -> bool:
    """Whether taps are transformed for Winograd's algorithm as they are."""
    encoding = key.desc.encoding
    given = isinstance(encoding, Winograd) and not (encoding.rotated or encoding.exchanged)
    return given and key.source.is_plain and key.source.data_type is key.desc.data_type


def move(key: Prepared, content: NDArray[np.uint8], wanted: Memory) -> None:
    """Write the bytes of a constant to ``wanted``."""
    if same_places(key.source, key.desc):
        wanted.write(content)
        return
    elements = plain_view(key.source, content)
    assert elements is not None
    desc = key.desc
    if isinstance(desc.encoding, Winograd):
        elements = _transformed(elements, desc.encoding.tile)
        (desc,) = desc.buffers
    data = wanted.buffer.data
    staged = np.empty(desc.size, np.uint8) if data is None else data
    put_elements(desc, staged, elements)
    if data is None:
        wanted.write(staged)


def _transformed(taps: np.ndarray, tile: int) -> np.ndarray:
    """Taps ([G,] O, C, 3, 3) as matrices (G, places in a tile, C, O)."""
    one = np.array(cook_toom(tile).of_taps, np.float64)
    both = np.kron(one, one).astype(np.float32)
    groups, outputs, channels = taps.shape[:3] if taps.ndim == 5 else (1, *taps.shape[:2])
    rows = taps.reshape(groups, outputs, channels, -1).transpose(0, 3, 2, 1).astype(np.float32)
    made = both @ rows.reshape(groups, rows.shape[1], -1)
    return np.asarray(made.reshape(groups, len(both), channels, outputs))
