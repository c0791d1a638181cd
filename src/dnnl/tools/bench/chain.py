"""Cases in which a depthwise convolution follows another: what they are filled with and should
give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.reference import convolution_chain as reference
from dnnl.reference.arrays import Array
from dnnl.reference.post_ops import apply_post_ops
from dnnl.tools.bench.quantization import Parameters, both
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.post_ops import PostOp, PostOpDepthwise, PostOpEltwise

_EXACT = (Alg.eltwise_relu, Alg.eltwise_abs, Alg.eltwise_clip, Alg.eltwise_clip_v2)


class Chained(NamedTuple):
    """The result of the last convolution before its post-ops, whether it has no error, where a
    rounding before decides on it, and the sizes of its terms."""

    result: Array
    exact: bool = True
    open: NDArray[np.bool_] | bool = False
    size: Array | None = None


def chain_inputs(desc: Desc) -> dict[int, Array]:
    """What the second convolution reads, if there is one."""
    second = getattr(desc, "second", None)
    return {} if second is None else reference.fill(second)


def through_chain(
    result: Array,
    meant: Mapping[int, Array],
    pd: PrimitiveDesc,
    made: Parameters,
    *,
    exact: bool,
) -> Chained:
    """What the second convolution makes of the ``result`` of the first; that itself, if there is
    none. ``meant`` are the inputs as they are meant."""
    desc: Any = pd.desc
    before, *behind = desc.stages(pd.attr.post_ops)
    if not behind:
        return Chained(result)
    entry = pd.attr.post_ops[behind[0].begin - 1]
    assert isinstance(entry, PostOpDepthwise)
    kind = before.dst.data_type
    values = apply_post_ops(result, before.entries, made.values, None, DataType.f32, kind)
    exact = exact and all(map(_exact, before.entries)) and not pd.attr.scales
    scale, zero_point = both(values.shape, Arg.DST, pd, made)
    between = reference.intermediate(values, kind, scale, zero_point, exact=exact)
    last = reference.depthwise(
        between.meant, meant[reference.WEIGHTS], meant.get(reference.BIAS), entry
    )
    open_at = reference.reached(between.open, entry)
    return Chained(last, exact, open_at, reference.size(meant, between, entry))


def _exact(entry: PostOp) -> bool:
    return isinstance(entry, PostOpEltwise) and entry.alg in _EXACT
