"""Inner product: a fully connected layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.ir.kernel import Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.matmul import inner_product as kernel
from dnnl.kernels.matmul import inner_product_gradients as gradients
from dnnl.kernels.product.base.types import narrowed
from dnnl.language.case import CaseValues, tensor
from dnnl.language.descriptor import Grammar
from dnnl.language.options import (
    ATTRIBUTES,
    BIA_DT,
    DIR,
    DTAG,
    MB,
    PRODUCT_DT,
    STAG,
    WTAG,
    Driver,
)
from dnnl.primitives.checks import check_dims, check_forward, spelled_size
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    refuse_attr,
    resolve_dropout,
    resolve_post_ops,
)
from dnnl.primitives.operation import BY_DATA, BY_WEIGHTS, FORWARD, Operation
from dnnl.primitives.weighted import (
    GRADIENTS,
    WeightedDesc,
    bare,
    bias_of_channels,
    order_hint,
    quantization_of,
    refuse_gradient,
    trained_roles,
)
from dnnl.reference.inner_product import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import PropKind
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class InnerProductDesc(WeightedDesc):
    """dst[n, oc] = bias[oc] + sum over the rest of src[n, ...] * weights[oc, ...].

    src is (N, IC, [[D,] H,] W) or (N, IC), weights (OC, IC, ...) of the same sizes, dst (N, OC),
    bias (OC). Arguments SRC, WEIGHTS, BIAS, DST; of the gradient of src DIFF_DST, WEIGHTS,
    DIFF_SRC; of those of weights and bias SRC, DIFF_DST, DIFF_WEIGHTS, DIFF_BIAS. Every layout may
    be ``any``.
    """

    prop_kind: PropKind
    src_desc: MemoryDesc
    weights_desc: MemoryDesc
    bias_desc: MemoryDesc
    dst_desc: MemoryDesc
    diff_src_desc: MemoryDesc
    diff_weights_desc: MemoryDesc
    diff_bias_desc: MemoryDesc
    diff_dst_desc: MemoryDesc

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        bias_desc: MemoryDesc | None = None,
    ) -> InnerProductDesc:
        """Describe a forward computation; raises InvalidArguments where sizes do not agree."""
        check_forward(prop_kind, GRADIENTS)
        return cls.made(
            prop_kind=prop_kind,
            src_desc=src_desc,
            weights_desc=weights_desc,
            bias_desc=bias_desc,
            dst_desc=dst_desc,
        )

    @classmethod
    def backward_data(
        cls, diff_src_desc: MemoryDesc, weights_desc: MemoryDesc, diff_dst_desc: MemoryDesc
    ) -> InnerProductDesc:
        """Describe the gradient of src; raises InvalidArguments where sizes do not agree."""
        return cls.made(
            prop_kind=PropKind.backward_data,
            diff_src_desc=diff_src_desc,
            weights_desc=weights_desc,
            diff_dst_desc=diff_dst_desc,
        )

    @classmethod
    def backward_weights(
        cls,
        src_desc: MemoryDesc,
        diff_weights_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        diff_bias_desc: MemoryDesc | None = None,
    ) -> InnerProductDesc:
        """Describe the gradients of the weights and, with ``diff_bias_desc``, of the bias; raises
        InvalidArguments where sizes do not agree."""
        return cls.made(
            prop_kind=PropKind.backward_weights,
            src_desc=src_desc,
            diff_weights_desc=diff_weights_desc,
            diff_bias_desc=diff_bias_desc,
            diff_dst_desc=diff_dst_desc,
        )

    def check(self) -> None:
        """The sizes of the tensors agree."""
        src, weights = self.src.dims, self.weights.dims
        if not 2 <= len(src) <= 5:
            rule = "expected (N, IC) and up to 3 spatial sizes"
            raise InvalidArguments(self.field("src"), src, rule)
        if weights[1:] != src[1:]:
            rule = f"after the output channels it must be as {self.name_of('src')}, {src[1:]}"
            raise InvalidArguments(self.field("weights"), weights, rule)
        out = src[0], weights[0]
        hint = order_hint(self.dst, self.bias, out)
        check_dims(self.field("dst"), self.dst, out, "batch and output channels", hint)
        if not self.bias.is_zero:
            check_dims(self.field("bias"), self.bias, weights[:1], "the output channels")

    @property
    def problem(self) -> str:
        """The sizes as benchdnn spells an inner product."""
        batch, channels, *spatial = self.src.dims
        names = ("id", "ih", "iw")[3 - len(spatial) :]
        parts = [("mb", batch), ("ic", channels), *zip(names, spatial, strict=True)]
        parts.append(("oc", self.weights.dims[0]))
        return "".join(f"{name}{spelled_size(size)}" for name, size in parts)


def _brgemm(desc: InnerProductDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr, "post_ops", "scales", "zero_points", "dropout")
    if refusal is not None:
        return refusal
    open_problem = kernel.InnerProductProblem(
        desc.src_desc,
        bare(desc.weights_desc),
        desc.bias_desc,
        desc.dst_desc,
        tuple(attr.post_ops),
        quantization_of(attr, desc.weights_desc),
        narrowed(attr, isa, desc.src_desc.data_type, desc.weights_desc.data_type),
    )
    problem = kernel.resolve(open_problem, isa)
    problem = replace(
        problem,
        post_ops=resolve_post_ops(problem.post_ops, problem.dst),
        dropout=resolve_dropout(attr.dropout, problem.dst),
    )
    conf = kernel.configure(problem, isa)
    if isinstance(conf, Refusal):
        return conf
    compensated = desc.weights_desc.compensation is not None
    weights = desc.weights_desc if compensated else problem.weights
    decided = replace(
        desc,
        src_desc=problem.src,
        weights_desc=weights,
        bias_desc=problem.bias,
        dst_desc=problem.dst,
    )
    return Plan(decided, problem.post_ops, Recipe(conf, isa, kernel.build), conf.scratchpad)


def _backward_data(desc: InnerProductDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    problem = gradients.InnerProductGradient(
        desc.diff_dst_desc, desc.weights_desc, desc.diff_src_desc
    )
    return _gradient(desc, attr, isa, problem, ("weights_desc", "diff_src_desc"))


def _backward_weights(desc: InnerProductDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    problem = gradients.InnerProductGradient(
        desc.diff_dst_desc,
        desc.src_desc,
        desc.diff_weights_desc,
        desc.diff_bias_desc,
        of_weights=True,
    )
    return _gradient(desc, attr, isa, problem, ("src_desc", "diff_weights_desc"))


def _gradient(
    desc: InnerProductDesc,
    attr: PrimitiveAttr,
    isa: Isa,
    given: gradients.InnerProductGradient,
    fields: tuple[str, str],
) -> Plan | Refusal:
    """The plan of a gradient, whose factor and result are the tensors in ``fields``."""
    refusal = refuse_gradient(desc, attr)
    if refusal is not None:
        return refusal
    narrow = narrowed(attr, isa, given.diff_dst.data_type, given.factor.data_type)
    problem = gradients.resolve(replace(given, narrow=narrow), isa)
    conf = gradients.configure(problem, isa)
    if isinstance(conf, Refusal):
        return conf
    own = dict(zip(fields, (problem.factor, problem.result), strict=True))
    decided = desc.laid_out(diff_dst_desc=problem.diff_dst, diff_bias_desc=problem.diff_bias, **own)
    return Plan(decided, (), Recipe(conf, isa, gradients.build), conf.scratchpad)


def _src(case: CaseValues) -> MemoryDesc:
    return tensor(case.sizes.src_dims, case.part("dt", 0), case["stag"])


def _weights(case: CaseValues) -> MemoryDesc:
    dims = (case.sizes["oc"], *case.sizes.src_dims[1:])
    return tensor(dims, case.part("dt", 1), case["wtag"])


def _dst(case: CaseValues) -> MemoryDesc:
    return tensor((case.sizes["mb"], case.sizes["oc"]), case.part("dt", 2), case["dtag"])


def _mask(case: CaseValues, argument: str, name: str, ndims: int) -> int | None:
    """The output channels of the weights come first."""
    return 1 if (argument, name) == ("wei", "per_oc") else None


InnerProductDesc.operation = Operation(
    kind="inner_product",
    summary="inner product: each output channel is a weighted sum of a whole image",
    driver=Driver(
        "ip",
        (
            DIR.but("FWD_B"), PRODUCT_DT, BIA_DT, STAG.but("any"), WTAG, DTAG, *ATTRIBUTES, MB,
        ),
        Grammar(("mb", "ic", "oc"), need=("ic", "oc")),
    ),
    roles=trained_roles(
        (_src, _weights, bias_of_channels, _dst), ("nc*", "oi*", "o", "no")
    ),
    parameters=(),
    flops=lambda desc: 2 * desc.src.dims[0] * desc.weights.nelems(),
    sums=True,
    compensated=(Arg.WEIGHTS,),
    reference=SPECIFICATION,
    examples=("--stag=any,axb mb3ic19ih3oc33",),
    implementations=(
        Implementation("brgemm", _brgemm, FORWARD),
        Implementation("brgemm", _backward_data, BY_DATA),
        Implementation("brgemm", _backward_weights, BY_WEIGHTS),
    ),
    mask=_mask,
)  # fmt: skip
