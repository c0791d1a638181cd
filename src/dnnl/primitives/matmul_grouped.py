"""Products of matrices in groups: what their descriptions and cases say, and how they are planned.

groups of rows    src [T, K] and dst [T, N] are grouped along 0, weights [G, K, N], bias [G, N]
groups of terms   src [M, T] is grouped along 1, weights [T, N] along 0, dst [G, M, N]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.kernel import Reason, Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.matmul import grouped as kernel
from dnnl.kernels.product.base.types import narrowed
from dnnl.language.case import CaseValues, tensor
from dnnl.language.errors import BadValue
from dnnl.primitives.implementation import (
    Hint,
    Plan,
    laid_out_as,
    refuse_attr,
    resolve_post_ops,
)
from dnnl.primitives.matrices import Matrices
from dnnl.primitives.weighted import quantization_of
from dnnl.reference.arrays import Array, f64
from dnnl.runtime.memory import Memory
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.encoding import Encoding, Grouped
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpPrelu
from dnnl.types.scales import ScaleSpec


def is_grouped(desc: Matrices) -> bool:
    """Whether a product of matrices has groups."""
    given = (desc.src_desc, desc.weights_desc, desc.dst_desc)
    return any(isinstance(own.encoding, Grouped) for own in given)


def check_groups(desc: Matrices) -> None:
    """Raise unless the tensors are those of one of the two kinds of groups."""
    src = desc.src_desc
    if not isinstance(src.encoding, Grouped):
        rule = "groups of weights or dst are those of src, which has none"
        raise InvalidArguments("src_desc", str(src), rule, "MemoryDesc.grouped(dims, type, 0, G)")
    count, of_terms = src.encoding.groups, src.encoding.variable_dim_idx == 1
    rows, depth = src.dims
    weights, dst, bias = desc.weights_desc, desc.dst_desc, desc.bias_desc
    columns = weights.dims[-1] if weights.ndims else 0
    along = Grouped(0, count)
    if of_terms:
        _expect("weights_desc", weights, (depth, columns), along)
        _expect("dst_desc", dst, (count, rows, columns), None)
        if not bias.is_zero:
            raise InvalidArguments("bias_desc", bias.dims, "groups of terms have no bias")
        return
    _expect("weights_desc", weights, (count, depth, columns), None)
    _expect("dst_desc", dst, (rows, columns), along)
    if not bias.is_zero:
        _expect("bias_desc", bias, (count, columns), None)


def _expect(name: str, desc: MemoryDesc, dims: tuple[int, ...], encoding: Encoding | None) -> None:
    if desc.dims != dims or desc.encoding != encoding:
        kind = "a dense tensor" if encoding is None else f"{encoding}"
        given = f"{desc} of dims {desc.dims}"
        raise InvalidArguments(name, given, f"expected {kind} of dims {dims} for this src")


def plan_grouped(desc: Matrices, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    """Plan a product with groups; one without is refused."""
    grouped = desc.src_desc.encoding
    if not isinstance(grouped, Grouped):
        return Refusal(Reason.LAYOUT, "no tensor is grouped")
    count, of_terms = grouped.groups, grouped.variable_dim_idx == 1
    allowed = () if of_terms else ("post_ops", "scales", "zero_points")
    refusal = refuse_attr(attr, *allowed) or _refuse_prelu(attr)
    if refusal is not None:
        return refusal
    dst = desc.dst_desc
    if dst.format_kind is FormatKind.any:
        dst = laid_out_as(dst, ())
    post_ops = resolve_post_ops(tuple(attr.post_ops), dst.buffers[0])
    bias = desc.bias_desc
    if bias.format_kind is FormatKind.any:
        bias = laid_out_as(bias, ())
    row = bias if bias.is_zero else bias.reshape((bias.dims[0], 1, bias.dims[1]))
    problem = kernel.GroupedProblem(
        _in_three(desc.src_desc),
        _in_three(desc.weights_desc),
        row,
        _in_three(dst),
        tuple(map(_moved, post_ops)),
        _quantization(attr, desc.weights_desc),
        narrowed(attr, isa, desc.src_desc.data_type, desc.weights_desc.data_type),
        groups=count,
        of_terms=of_terms,
    )
    problem = kernel.resolve(problem, isa)
    conf = kernel.configure(problem, isa)
    if isinstance(conf, Refusal):
        return conf
    weights = desc.weights_desc if of_terms else problem.weights
    decided = replace(desc, weights_desc=weights, dst_desc=dst, bias_desc=bias)
    recipe = Recipe(conf, isa, kernel.build)
    return Plan(decided, post_ops, recipe, conf.scratchpad, hints=_HINTS)


def _check_group_size(args: Mapping[int, Memory]) -> None:
    """Raise if a group has more elements than the hint says that any has.

    That is all it is good for here: an item of work reads what its group has.
    """
    bound = int(args[Arg.HINT_MAX_GROUP_SIZE].numpy().reshape(()))
    sizes = np.diff(args[Arg.part(Arg.SRC, 1)].numpy(), prepend=0)
    if sizes.size and bound < sizes.max():
        rule = f"an upper bound of the groups' sizes; group {sizes.argmax()} has {sizes.max()}"
        raise InvalidArguments("args[HINT_MAX_GROUP_SIZE]", bound, rule, "the hint may be left out")


_HINTS = (Hint(Arg.HINT_MAX_GROUP_SIZE, MemoryDesc((1,), "s32"), _check_group_size),)


def _refuse_prelu(attr: PrimitiveAttr) -> Refusal | None:
    """Weights of a prelu are row-major for matrices, and channels-last in three dimensions."""
    both = any(isinstance(entry, PostOpPrelu) and entry.mask == 0b11 for entry in attr.post_ops)
    rule = "a prelu whose weights vary along both dimensions of groups; it takes masks 0, 1 and 2"
    return Refusal(Reason.ATTRIBUTE, rule) if both else None


def _moved(entry: PostOp) -> PostOp:
    """The post-op of a matrix with a dimension of size 1 before it."""
    if isinstance(entry, PostOpPrelu):
        return PostOpPrelu(entry.mask << 1)
    return entry.mapped(_in_three)


def _in_three(desc: MemoryDesc) -> MemoryDesc:
    """A matrix, or the values of a grouped one, with a dimension of size 1 before it."""
    values = desc.buffers[0]
    return values if values.ndims != 2 else values.reshape((1, *values.dims))


def _quantization(attr: PrimitiveAttr, weights: MemoryDesc) -> Quantization:
    """What the attributes need apart from the weights, for tensors of three dimensions."""

    def moved(arg: int, spec: ScaleSpec) -> ScaleSpec:
        return spec if arg == Arg.WEIGHTS else replace(spec, mask=spec.mask << 1)

    given = quantization_of(attr, weights)
    scales, zero_points = (
        tuple((arg, moved(arg, spec)) for arg, spec in specs)
        for specs in (given.scales, given.zero_points)
    )
    return Quantization(scales, zero_points, given.adjust)


def case_tensors(case: CaseValues) -> tuple[MemoryDesc, MemoryDesc, MemoryDesc]:
    """src, weights and dst of a case."""
    dim, count = case["grouped"].dim, group_count(case)
    rows, depth, columns = _sizes(case)
    src, weights, dst = (case.part("dt", number) for number in range(3))
    grouped = MemoryDesc.grouped((rows, depth), src, dim, count)
    if dim:
        dims = (count, rows, columns)
        return (
            grouped,
            MemoryDesc.grouped((depth, columns), weights, 0, count),
            MemoryDesc(dims, dst),
        )
    dims = (count, depth, columns)
    own = tensor(dims, weights, case["wtag"])
    return grouped, own, MemoryDesc.grouped((rows, columns), dst, 0, count)


def group_count(case: CaseValues) -> int:
    """How many groups a case has."""
    count: int = case["grouped"].number(case.shapes.tensors[1])
    return count


def _sizes(case: CaseValues) -> tuple[int, int, int]:
    """M, K and N of ``MxK:GxKxN``, groups of rows, or ``MxK:KxN``, which may be either."""
    dim, count = case["grouped"].dim, group_count(case)
    src, weights = case.shapes.tensors
    batch = weights[:-2]
    if len(src) != 2 or len(weights) < 2 or src[1] != weights[-2] or (batch and dim):
        form = "MxK:KxN" if dim else f"MxK:{count}xKxN"
        raise BadValue(f"problem {case.problem.text!r}: expected {form}")
    if batch and batch != (count,):
        rule = f"--grouped={case['grouped']} has {count} groups, the weights {batch[0]}"
        raise BadValue(f"problem {case.problem.text!r}: {rule}")
    return src[0], src[1], weights[-1]


def case_contents(case: CaseValues) -> dict[int, Array]:
    """The offsets of the groups of a case, by the keys of their buffers."""
    if not case["grouped"]:
        return {}
    grouped = case["grouped"]
    dim, count = grouped.dim, group_count(case)
    total = case.shapes.tensors[0][dim]
    given = grouped.sizes(total, count)
    if sum(given) != total:
        rule = f"the sizes of {count} groups make {sum(given)}, there are {total}"
        raise BadValue(f"--grouped={case['grouped']}: {rule}")
    ends = f64(np.cumsum(given))
    return {Arg.part(owner, 1): ends for owner in (Arg.SRC, Arg.WEIGHTS if dim else Arg.DST)}
