"""All operators of ATen that graphs have, from the tables of their families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dnnl.torch import private
from dnnl.torch.aten import (
    attention,
    convolution,
    creation,
    elementwise,
    gradients,
    indexing,
    normalization,
    products,
    quantization,
    recurrent,
    reductions,
    resizing,
    views,
    windows,
)
from dnnl.torch.aten.writer import Translate

_FAMILIES = (
    elementwise,
    views,
    products,
    convolution,
    normalization,
    reductions,
    windows,
    resizing,
    indexing,
    creation,
    attention,
    recurrent,
    quantization,
    gradients,
)

_SPACES: Mapping[str, Any] = {
    "aten": torch.ops.aten,
    "dnnl": torch.ops.dnnl,
    "prims": torch.ops.prims,
    "quantized_decomposed": private.quantized_operators(),
}


def _overload(name: str) -> torch._ops.OpOverload:
    """The operator that a key of a family's table names: ``add.Tensor``, ``prims.iota``."""
    space, _, rest = name.partition(".")
    if space not in _SPACES:
        space, rest = "aten", name
    packet, _, overload = rest.partition(".")
    found = getattr(_SPACES[space], packet)
    own: torch._ops.OpOverload = getattr(found, overload or "default")
    return own


TRANSLATIONS: Mapping[torch._ops.OpOverload, Translate] = {
    _overload(name): translate for family in _FAMILIES for name, translate in family.TABLE.items()
}
"""How each operator is written as nodes: a function of a writer and the arguments of its schema."""
