"""The tensors of a product of matrices."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.primitives.desc import Desc
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True, init=False)
class Matrices(Desc):
    """src [..., M, K], weights [..., K, N], dst [..., M, N] and bias, which may be zero."""

    src_desc: MemoryDesc
    weights_desc: MemoryDesc
    dst_desc: MemoryDesc
    bias_desc: MemoryDesc
