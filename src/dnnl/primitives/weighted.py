"""The tensors of operations that multiply a source by weights, as their records list them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.language.case import CaseValues, bias_type
from dnnl.language.descriptor import Descriptor
from dnnl.primitives.operation import FORWARD, Operation, Role
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import PropKind
from dnnl.types.memory_desc import MemoryDesc

Made = Callable[[CaseValues], MemoryDesc | None]


def bare(weights: MemoryDesc) -> MemoryDesc:
    """The weights without the sums that a reorder may have left behind them."""
    return weights if weights.compensation is None else weights.with_compensation(None)


def order_hint(dst: MemoryDesc, bias: MemoryDesc, expected: Sequence[int]) -> str:
    """What to look at where dst has not the dims ``expected``: whether bias came before it, as in
    oneDNN, so that dst is given as a vector or what is given as bias has its dims."""
    if dst.ndims == 1 or bias.dims == tuple(expected):
        return "oneDNN has bias before dst; here bias_desc comes last"
    return ""


def quantization_of(attr: PrimitiveAttr, weights: MemoryDesc) -> Quantization:
    """What the attributes need besides weights, which a reorder may have made smaller, so that sums
    of 16 bits would hold them."""
    given, sums = Quantization.of(attr), weights.compensation
    return given if sums is None else replace(given, adjust=sums.scale_adjust)


def bias_of_channels(case: CaseValues) -> MemoryDesc | None:
    """One value for each output channel of a case, if it has a bias."""
    kind = bias_type(case)
    return None if kind is None else MemoryDesc((case.sizes["oc"],), kind)


def kernel_dims(sizes: Descriptor) -> tuple[int, ...]:
    """The dims of the weights of a kernel that slides over images."""
    groups = (sizes.groups,) if sizes.grouped else ()
    channels = sizes["oc"] // sizes.groups, sizes["ic"] // sizes.groups
    return (*groups, *channels, *sizes.spatial("k"))


def mask_of_outputs(case: CaseValues, argument: str, name: str, ndims: int) -> int | None:
    """The output channels of the weights are the first dimension, behind the groups if any."""
    if (argument, name) == ("wei", "per_oc"):
        return 3 if case.sizes.grouped else 1
    if (argument, name) == ("attr_post_op_dw_wei", "per_oc"):
        return 3
    return None


def lacking(
    operation: Operation, prop_kind: PropKind, forward: Callable[[], object], *gradients: str
) -> Unimplemented:
    """The error for a gradient that no implementation computes.

    ``forward`` describes the forward computation, whose rules the gradient has as well: what it
    raises is raised in the names of the ``gradients`` of its tensors.
    """
    try:
        forward()
    except InvalidArguments as error:
        own = f"diff_{error.argument}"
        name = own if own in gradients else error.argument
        raise InvalidArguments(name, error.value, error.rule, error.hint) from None
    return operation.lacks(prop_kind)


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
