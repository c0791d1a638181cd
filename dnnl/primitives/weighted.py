"""The tensors of operations that multiply a source by weights, as their records list them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dnnl.language.case import CaseValues, bias_type
from dnnl.primitives.operation import FORWARD, Role
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

Made = Callable[[CaseValues], MemoryDesc | None]


def bias_of_channels(case: CaseValues) -> MemoryDesc | None:
    """One value for each output channel of a case, if it has a bias."""
    kind = bias_type(case)
    return None if kind is None else MemoryDesc((case.sizes["oc"],), kind)


def weighted_roles(
    made: tuple[Made, Made, Made, Made],
    letters: tuple[str, str, str, str],
    remark: Callable[[MemoryDesc], str] | None = None,
) -> tuple[Role, ...]:
    """src, weights, bias and dst, whose layouts an implementation decides.

    In this order, ``made`` has the descriptor of each in a case and ``letters`` its dimensions;
    ``remark`` is that of the bias.
    """
    src, weights, bias, dst = (
        partial(Role, chosen=True, case=case, letters=named)
        for case, named in zip(made, letters, strict=True)
    )
    return (
        src(Arg.SRC, "src", "src_desc", reads=FORWARD),
        weights(Arg.WEIGHTS, "wei", "weights_desc", reads=FORWARD),
        bias(Arg.BIAS, "bia", "bias_desc", reads=FORWARD, optional=True, remark=remark),
        dst(Arg.DST, "dst", "dst_desc", writes=FORWARD),
    )
