"""Copy a tensor into another layout and type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.kernel import Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.kernels.reorder import nibbles
from dnnl.kernels.reorder import packed as reorder_packed
from dnnl.kernels.reorder import reorder as kernel
from dnnl.kernels.reorder import winograd as reorder_winograd
from dnnl.language.attributes import Sum
from dnnl.language.case import INVALID, NOT_SUPPORTED, CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    DDT,
    SDT,
    STAG,
    Driver,
    Option,
    appended_sums,
    ends,
    given_tag,
    strides,
    tags,
    target,
)
from dnnl.language.problem import Dims
from dnnl.language.values import Parts, data_type, integer, one_of, several
from dnnl.primitives.checks import check_dims, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, refuse_attr, resolve_post_ops
from dnnl.primitives.operation import FORWARD, Operation, Role
from dnnl.reference.reorder import SPECIFICATION
from dnnl.runtime.encoded import over_capacity
from dnnl.runtime.memory import Memory
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.compensation import Compensation
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class ReorderDesc(Desc):
    """dst = src, the same tensor in another layout and type.

    With attributes, dst = (src_scale * (src - src_zero_point) + sum_scale * dst) / dst_scale +
    dst_zero_point, in f32 (f64 where src or dst has 64 bits and no other post-op follows). Without,
    each element is rounded once, to nearest, ties to even, and integers saturate exactly; boolean
    is 1 for all but zero. Arguments FROM (SRC), TO (DST). Both layouts are given, the dims are
    equal: there is no broadcasting. The padding of dst is zero afterwards.

    Dense weights of s8 or u8 become packed ones (`MemoryDesc.packed`) in the encoding that a matmul
    chose; more nonzero elements than their capacity raise InvalidArguments.

    If dst has a :class:`Compensation`, its weights are multiplied by ``scale_adjust`` before the
    division by dst_scale, and their sums are written behind them. Weights of src are divided by
    their ``scale_adjust`` at first, and the sums behind them are not read.

    Dims, strides and offsets may be RUNTIME_DIM: the memories of an execution say what they are,
    and one kernel serves nearly all of them.

    src may be on another engine than dst.
    """

    shortest_row = 5

    src_desc: MemoryDesc
    dst_desc: MemoryDesc

    def check(self) -> None:
        """dst has the dims of src."""
        check_dims("dst_desc", self.dst_desc, self.src_desc.dims, "the dims of src")

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.src_desc.dims)


def _nest(desc: ReorderDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    conf = _configure(desc, attr)
    if isinstance(conf, Refusal):
        return conf
    packed = nibbles.configure(conf, isa)
    if packed is not None:
        recipe = Recipe(packed, isa, nibbles.build)
        return Plan(desc, conf.post_ops, recipe, packed.scratchpad)
    return Plan(desc, conf.post_ops, Recipe(conf, isa, kernel.build))


def _packed(desc: ReorderDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr)
    if refusal is not None:
        return refusal
    conf = reorder_packed.configure(desc.src_desc, desc.dst_desc, isa)
    if isinstance(conf, Refusal):
        return conf
    recipe = Recipe(conf, isa, reorder_packed.build)
    verify = partial(_verify, conf) if conf.dst.nelems() else None
    return Plan(desc, (), recipe, conf.scratchpad, verify=verify)


def _winograd(desc: ReorderDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr)
    if refusal is not None:
        return refusal
    conf = reorder_winograd.configure(desc.src_desc, desc.dst_desc, isa)
    if isinstance(conf, Refusal):
        return conf
    return Plan(desc, (), Recipe(conf, isa, reorder_winograd.build))


def _verify(conf: reorder_packed.PackedConf, memories: Mapping[int, Memory]) -> None:
    """Raise if there were more nonzero weights than the packed ones can hold."""
    found = int(memories[Arg.part(Arg.TO, 1)].numpy()[-1])
    if found > conf.encoding.nnz:
        raise over_capacity(conf.dst, found)


def _configure(desc: ReorderDesc, attr: PrimitiveAttr) -> kernel.ReorderConf | Refusal:
    refusal = refuse_attr(attr, "post_ops", "scales", "zero_points")
    if refusal is not None:
        return refusal
    post_ops = resolve_post_ops(tuple(attr.post_ops), desc.dst_desc)
    return kernel.configure(desc.src_desc, desc.dst_desc, post_ops, Quantization.of(attr))


def _invalid(case: CaseValues) -> str | None:
    """Zero points of floats, and a sum with one of the destination, are undefined."""
    types = dict(zip(("src", "dst"), _types(case), strict=True))
    sums = any(isinstance(entry, Sum) for entry in case["attr-post-ops"].items)
    for entry in case["attr-zero-points"].items:
        kind = types.get(entry.name)
        if kind is None or kind.is_float or (entry.name == "dst" and sums):
            return INVALID
    if case["oflag"].masks and (types["dst"] is not DataType.s8 or case["runtime-dim-mask"]):
        return NOT_SUPPORTED
    return None


def _complete(desc: ReorderDesc, case: CaseValues) -> ReorderDesc:
    """With the sums behind dst, and with what only execution knows left open."""
    mask, sums = int(case["runtime-dim-mask"]), case["oflag"].masks
    if sums and mask:
        raise Unimplemented("no sums behind weights whose dims only the execution knows")
    if sums:
        return replace(desc, dst_desc=desc.dst_desc.with_compensation(Compensation(**sums)))
    if not mask:
        return desc
    sizes = case.shapes.dims
    dims = tuple(RUNTIME_DIM if mask >> dim & 1 else size for dim, size in enumerate(sizes))
    return ReorderDesc(_src(case, dims), _dst(case, dims))


def _pair(text: str) -> Parts:
    """``SRC:DST``, one type for both, or none."""
    return several(data_type, (1, 2))(text) if text else Parts(())


def _types(case: CaseValues) -> tuple[DataType, DataType]:
    """The types of src and dst, which ``dt`` gives at once."""
    given = case["dt"].items or (case["sdt"], case["ddt"])
    return given[0], given[-1]


def _src(case: CaseValues, dims: tuple[int, ...]) -> MemoryDesc:
    return tensor(dims, _types(case)[0], case["stag"], case.strides(0, "stag"))


def _dst(case: CaseValues, dims: tuple[int, ...]) -> MemoryDesc:
    return tensor(dims, _types(case)[1], case["dtag"], case.strides(1, "dtag"))


def _mask(case: CaseValues, argument: str, name: str, ndims: int) -> int | None:
    """A reorder has no output channels."""
    if name == "per_oc":
        hint = f"the mask as a number is {1 << min(1, ndims - 1)}"
        raise InvalidArguments("mask", name, "--reorder does not have this name", hint)
    return None


ReorderDesc.operation = Operation(
    kind="reorder",
    only_moves=True,
    summary="reorder: the same elements in another layout or type",
    driver=Driver(
        "reorder",
        (
            SDT.shown(), DDT.shown(), Option("dt", "", _pair, layout=True), STAG.shown(),
            tags("dtag", "abx", target, spelled=given_tag).shown(),
            strides(ends, 2, given_tag), appended_sums("oflag"),
            Option("cross-engine", "none", one_of("none", "cpu2gpu", "gpu2cpu")),
            *ATTRIBUTES, Option("runtime-dim-mask", "0", integer),
        ),
        Dims(),
    ),
    roles=(
        Role(
            Arg.FROM, "src", "src_desc", reads=FORWARD,
            case=lambda case: _src(case, case.shapes.dims),
        ),
        Role(
            Arg.TO, "dst", "dst_desc", writes=FORWARD,
            case=lambda case: _dst(case, case.shapes.dims),
        ),
    ),
    parameters=(),
    compensated=(Arg.FROM, Arg.TO),
    across_engines=True,
    sums=True,
    reference=SPECIFICATION,
    examples=("--stag=abx --dtag=axb,aBx16b 3x19x5", "--ddt=s8 --attr-scales=dst:0:0.5 3x19"),
    implementations=(
        Implementation("nest", _nest),
        Implementation("pack", _packed, encoded=True),
        Implementation("winograd", _winograd, encoded=True),
    ),
    invalid=_invalid,
    complete=_complete,
    mask=_mask,
)  # fmt: skip
