"""The tensors of operations that multiply a source by weights, as their records list them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.language.case import CaseValues, bias_type
from dnnl.language.descriptor import Descriptor
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import refuse_attr
from dnnl.primitives.operation import BY_DATA, BY_WEIGHTS, FORWARD, NEVER, Role
from dnnl.types.arg import GRADIENT, Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import PropKind
from dnnl.types.memory_desc import MemoryDesc

Made = Callable[[CaseValues], MemoryDesc | None]

GRADIENTS = "the gradients are backward_data() and backward_weights()"
_OF_PASS = {
    PropKind.backward_data: ("src", "dst"),
    PropKind.backward_weights: ("weights", "bias", "dst"),
}


class WeightedDesc(Desc):
    """The description of a product of src and weights, or of one of its gradients. ``src``,
    ``weights``, ``bias`` and ``dst`` are the tensors or, where it is these that are there, their
    gradients."""

    src_desc: MemoryDesc
    weights_desc: MemoryDesc
    bias_desc: MemoryDesc
    dst_desc: MemoryDesc
    diff_src_desc: MemoryDesc
    diff_weights_desc: MemoryDesc
    diff_bias_desc: MemoryDesc
    diff_dst_desc: MemoryDesc

    def field(self, tensor: str) -> str:
        """The field of a tensor, or of its gradient: ``dst_desc`` or ``diff_dst_desc``."""
        prefix = "diff_" if tensor in _OF_PASS.get(self.propagation, ()) else ""
        return f"{prefix}{tensor}_desc"

    def name_of(self, tensor: str) -> str:
        """What messages call a tensor, or its gradient: ``dst`` or ``diff_dst``."""
        return self.field(tensor).removesuffix("_desc")

    def _either(self, tensor: str) -> MemoryDesc:
        desc: MemoryDesc = getattr(self, self.field(tensor))
        return desc

    @property
    def src(self) -> MemoryDesc:
        """src, or its gradient."""
        return self._either("src")

    @property
    def weights(self) -> MemoryDesc:
        """The weights, or their gradient."""
        return self._either("weights")

    @property
    def bias(self) -> MemoryDesc:
        """The bias, or its gradient; the zero descriptor if there is none."""
        return self._either("bias")

    @property
    def dst(self) -> MemoryDesc:
        """dst, or its gradient."""
        return self._either("dst")


def refuse_gradient(desc: Desc, attr: PrimitiveAttr) -> Refusal | None:
    """Why no kernel computes a gradient of these types, or with these attributes, or None."""
    for tensor in desc.tensors:
        if not tensor.desc.data_type.is_float:
            detail = f"{tensor.field} of {tensor.desc.data_type}; gradients take floats, as f32"
            return Refusal(Reason.DATA_TYPE, detail)
    return refuse_attr(attr)


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


def trained_roles(
    made: tuple[Made, Made, Made, Made], letters: tuple[str, str, str, str]
) -> tuple[Role, ...]:
    """`weighted_roles`, each followed by that of its gradient.

    The layouts of weights and of their gradient are not those of the forward description: its
    kernel has panels of its own.
    """
    passes = {
        Arg.SRC: (BY_WEIGHTS, BY_DATA),
        Arg.WEIGHTS: (BY_DATA, BY_WEIGHTS),
        Arg.BIAS: (NEVER, BY_WEIGHTS),
        Arg.DST: (NEVER, NEVER),
    }
    found = []
    for role in weighted_roles(made, letters):
        reads, writes = passes[Arg(role.argument)]
        own = replace(role, reads=role.reads | reads, independent=role.argument == Arg.WEIGHTS)
        argument, field = role.argument + GRADIENT, f"diff_{role.field}"
        read = NEVER if writes else BY_DATA | BY_WEIGHTS
        found += [own, replace(own, argument=argument, field=field, reads=read, writes=writes)]
    return tuple(found)
