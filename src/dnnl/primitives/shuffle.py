"""Shuffle: the elements along one axis in another order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.data import shuffle as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import ATTRIBUTES, AXIS, DIR, DT, TAG, Driver, auxiliary
from dnnl.language.problem import Dims
from dnnl.language.values import integer
from dnnl.primitives.checks import check_dims, check_forward, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_forward, plan_nest
from dnnl.primitives.operation import BACKWARD_DATA, FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import AxisDomain, Whole
from dnnl.primitives.roles import data_roles
from dnnl.reference.shuffle import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import RUNTIME_DIM, PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.runtime_dim import RuntimeDim


@dataclass(frozen=True)
class ShuffleDesc(Desc):
    """dst[u + v * C / G] = src[u * G + v] along ``axis``, which has C elements in groups of G, the
    ``group_size``: neighbours of a group end up C / G elements apart.

    PyTorch's ``channel_shuffle(src, C // G)``. Arguments SRC, DST; dst may be ``any``. Backward
    arguments DIFF_DST, DIFF_SRC, of which one may be ``any``: each gradient goes back to where its
    element came from. The bits of elements are moved, of any type of whole bytes.
    """

    prop_kind: PropKind
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    axis: int
    group_size: int
    diff_src_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_dst_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        axis: int,
        group_size: int,
    ) -> ShuffleDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        check_forward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            src_desc=src_desc,
            dst_desc=dst_desc,
            axis=axis,
            group_size=group_size,
        )

    @classmethod
    def backward(
        cls, diff_src_desc: MemoryDesc, diff_dst_desc: MemoryDesc, axis: int, group_size: int
    ) -> ShuffleDesc:
        """Describe the gradient of a forward computation with this axis and group size; raises
        InvalidArguments where the rules are broken."""
        return cls.made(
            prop_kind="backward_data",
            diff_src_desc=diff_src_desc,
            diff_dst_desc=diff_dst_desc,
            axis=axis,
            group_size=group_size,
        )

    def check(self) -> None:
        """Both tensors have the same dims, and groups fill the axis."""
        (first, model), (name, desc) = self._given()
        check_dims(name, desc, model.dims, f"the dims of {first.removesuffix('_desc')}")
        extent = model.dims[self.axis]
        if extent != RUNTIME_DIM and extent % self.group_size:
            rule = f"must divide the {extent} elements along axis {self.axis}"
            largest = max(n for n in range(1, self.group_size) if extent % n == 0)
            raise InvalidArguments("group_size", self.group_size, rule, f"try {largest}")

    def size_promise(self, argument: int, dim: int) -> int:
        """The axis has whole groups."""
        return RuntimeDim(multiple=self.group_size) if dim == self.axis else RUNTIME_DIM

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.outputs[0].desc.dims)


def _forward(desc: ShuffleDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    ends = desc.src_desc, desc.dst_desc
    configure = partial(kernel.configure, desc.group_size, desc.axis, *ends, forward=True)
    return plan_forward(desc, attr, isa, configure, kernel.build)


def _backward(desc: ShuffleDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    ends = desc.diff_dst_desc, desc.diff_src_desc
    configure = partial(
        kernel.configure, desc.group_size, desc.axis, *ends, Attributes(), forward=False
    )
    return plan_nest(desc, attr, isa, configure, kernel.build)


def _given(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.dims, case.part("dt", 0), case.tag(0))


def _made(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.dims, case.part("dt", 1), case.tag(1))


ShuffleDesc.operation = Operation(
    kind="shuffle",
    summary="shuffle: the elements along one axis in another order, as a transposition of groups",
    driver=Driver(
        "shuffle",
        (DIR, DT, TAG, auxiliary("group", "1", integer), AXIS, *ATTRIBUTES),
        Dims(),
    ),
    roles=(
        *data_roles(_given, _made),
        Role(
            Arg.DIFF_DST, "diff_dst", "diff_dst_desc", reads=BACKWARD_DATA,
            like=("diff_src_desc",), case=_given,
        ),
        Role(
            Arg.DIFF_SRC, "diff_src", "diff_src_desc", writes=BACKWARD_DATA,
            like=("diff_dst_desc",), case=_made,
        ),
    ),
    parameters=(
        Parameter("axis", AxisDomain(), lambda case: case["axis"], "axis"),
        Parameter("group_size", Whole(1), lambda case: case["group"], "group"),
    ),
    reference=SPECIFICATION,
    examples=(
        "--group=1,4,5,20 --tag=abx,axb,aBx16b 3x20x7",
        "--dt=bf16,s8 --group=2,16,32 --tag=abx,axb,aBx16b 2x64x3x5",
        "--axis=0,2 --group=3 6x5x9",
    ),
    implementations=(
        Implementation("nest", _forward, FORWARD),
        Implementation("nest", _backward, BACKWARD_DATA),
    ),
)  # fmt: skip
