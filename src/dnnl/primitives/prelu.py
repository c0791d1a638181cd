"""Prelu: a relu whose slopes are learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.pointwise import prelu as kernel
from dnnl.kernels.pointwise import prelu_backward as gradient
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import ATTRIBUTES, DIR, Driver, open_tag, tags, types, weights
from dnnl.language.problem import Dims
from dnnl.language.values import several, text
from dnnl.language.verbose import OperationLine, Tensor
from dnnl.primitives.checks import check_dims, check_forward, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    plan_forward,
    plan_nest,
)
from dnnl.primitives.operation import FORWARD, Operation, Role
from dnnl.reference.prelu import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import broadcasts

_BACKWARD = frozenset({PropKind.backward})


@dataclass(frozen=True)
class PreluDesc(Desc):
    """dst = src where src > 0, else src * weights.

    Arguments SRC, WEIGHTS, DST. Each dimension of the weights is 1 or that of src: elements that
    differ in a dimension of 1 alone share a weight. weights and dst may be ``any``, and dst may be
    src's buffer. Integers are computed as f32, rounded and saturated. Forward, dims, strides and
    offsets of plain layouts may be RUNTIME_DIM: one primitive serves all of them.

    Backward arguments SRC, WEIGHTS, DIFF_DST, DIFF_SRC, DIFF_WEIGHTS: diff_src is diff_dst where
    src > 0, else diff_dst * weights; diff_weights is the sum of src * diff_dst over the elements of
    a weight that are not positive. Gradients may be ``any``, and diff_src may be the buffer of
    diff_dst.
    """

    prop_kind: PropKind
    src_desc: MemoryDesc
    weights_desc: MemoryDesc
    dst_desc: MemoryDesc
    diff_src_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_weights_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_dst_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        dst_desc: MemoryDesc,
    ) -> PreluDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        check_forward(prop_kind)
        return cls.made(
            prop_kind=prop_kind, src_desc=src_desc, weights_desc=weights_desc, dst_desc=dst_desc
        )

    @classmethod
    def backward(
        cls,
        src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        diff_src_desc: MemoryDesc,
        diff_weights_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
    ) -> PreluDesc:
        """Describe both gradients of a forward computation of ``src_desc``; raises
        InvalidArguments where the rules are broken."""
        return cls.made(
            prop_kind="backward",
            src_desc=src_desc,
            weights_desc=weights_desc,
            diff_src_desc=diff_src_desc,
            diff_weights_desc=diff_weights_desc,
            diff_dst_desc=diff_dst_desc,
        )

    def check(self) -> None:
        """All tensors have the dims of src, but for the weights, which may have 1 in their stead,
        and whose gradient has their dims."""
        src, own = self.src_desc.dims, self.weights_desc.dims
        fits = len(own) == len(src) and all(
            broadcasts(extent, full) for extent, full in zip(own, src, strict=True)
        )
        if not fits:
            rule = f"each dimension must be 1 or that of src, which is {src}"
            hint = ""
            if len(own) == 1 < len(src) and own[0] == src[1]:
                hint = f"one for each channel is {(1, *own, *[1] * (len(src) - 2))}"
            raise InvalidArguments("weights_desc", own, rule, hint)
        for name, desc in self._given():
            if name == "diff_weights_desc":
                check_dims(name, desc, own, "the dims of weights")
            elif name != "weights_desc":
                check_dims(name, desc, src, "the dims of src")

    @property
    def problem(self) -> str:
        """The dims of src and weights."""
        return f"{spelled(self.src_desc.dims)}:{spelled(self.weights_desc.dims)}"


def _forward(desc: PreluDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan_forward(desc, attr, isa, _configure(desc), kernel.build)


def _configure(desc: PreluDesc) -> partial[kernel.PreluConf | Refusal]:
    return partial(kernel.configure, desc.src_desc, desc.weights_desc, desc.dst_desc)


def _backward(desc: PreluDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(
        gradient.configure,
        desc.src_desc,
        desc.weights_desc,
        desc.diff_dst_desc,
        desc.diff_src_desc,
        desc.diff_weights_desc,
        isa,
    )
    return plan_nest(desc, attr, isa, configure, gradient.build)


def _in_line(line: OperationLine) -> list[Tensor]:
    return [line.source, *weights(line)]


def _typed(line: OperationLine) -> list[Tensor]:
    """src and weights, and dst where it has another type."""
    alike = line.target.data_type == line.source.data_type
    return _in_line(line) if alike else [*_in_line(line), line.target]


def _laid_out(line: OperationLine) -> list[Tensor]:
    """src and weights, and dst where it is given in another layout."""
    alike = open_tag(line.target) in ("any", open_tag(line.source))
    return _in_line(line) if alike else [*_in_line(line), line.target]


def _data(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.padded[0], case.part("sdt", 0), case.part("stag", 0))


def _weights(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.padded[1], case.part("sdt", 1), case.part("stag", 1))


def _dst(case: CaseValues) -> MemoryDesc:
    """As src where the case does not say more."""
    kinds, tags = case["sdt"].items, case["stag"].items
    kind, tag = kinds[2] if len(kinds) > 2 else kinds[0], tags[2] if len(tags) > 2 else "any"
    return tensor(case.shapes.padded[0], kind, tag)


def _open(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.padded[0], case.part("sdt", 0), "any")


def _open_weights(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.padded[1], case.part("sdt", 1), "any")


PreluDesc.operation = Operation(
    kind="prelu",
    summary="prelu: negative elements times a weight",
    driver=Driver(
        "prelu",
        (
            DIR, types("sdt", "f32:f32", _typed, (1, 2, 3)),
            tags("stag", "abx:any", _laid_out, several(text, (2, 3))), *ATTRIBUTES,
        ),
        Dims(2, 2, " with "),
    ),
    roles=(
        Role(Arg.SRC, "src", "src_desc", reads=FORWARD | _BACKWARD, case=_data),
        Role(
            Arg.WEIGHTS, "wei", "weights_desc", reads=FORWARD | _BACKWARD, like=("src_desc",),
            case=_weights,
        ),
        Role(Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_desc",), case=_dst),
        Role(
            Arg.DIFF_SRC, "diff_src", "diff_src_desc", writes=_BACKWARD, like=("src_desc",),
            case=_open,
        ),
        Role(
            Arg.DIFF_WEIGHTS, "diff_wei", "diff_weights_desc", writes=_BACKWARD,
            like=("weights_desc",), case=_open_weights,
        ),
        Role(
            Arg.DIFF_DST, "diff_dst", "diff_dst_desc", reads=_BACKWARD, like=("src_desc",),
            case=_dst,
        ),
    ),
    parameters=(),
    in_place=((Arg.DST, Arg.SRC), (Arg.DIFF_SRC, Arg.DIFF_DST)),
    reference=SPECIFICATION,
    examples=(
        "--stag=abx:any,axb:axb,aBx16b:any 3x19x5:1x19 3x19x5:3x1x5 3x19x5:1 2x19x3x4:2x19x3x4",
        "--sdt=bf16:f32,f16,s8:bf16 --stag=abx:any 3x19x5:1x19",
        "70x40x9:1x40 70x40x9:1 70x40x9:70x1x1",
    ),
    implementations=(
        Implementation("nest", _forward, FORWARD),
        Implementation("nest", _backward, _BACKWARD),
    ),
)  # fmt: skip
