"""A line of the bench as a patient: one product, with tensors from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.language.verbose import OperationLine, is_verbose
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.reference.arrays import Array
from dnnl.reference.post_ops import apply_post_ops
from dnnl.reference.product import ProductSpecification
from dnnl.reference.specification import Description
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.creation import create
from dnnl.tools.bench.drivers import description
from dnnl.tools.bench.verbose_line import operation_tokens, read
from dnnl.tools.quantcheck.data import checked
from dnnl.tools.quantcheck.layer import Layer, Named, Product, examine
from dnnl.tools.quantcheck.report import Report
from dnnl.tools.quantcheck.scheme import Scheme
from dnnl.types.arg import Arg
from dnnl.types.kinds import nearest
from dnnl.types.post_ops import PostOpEltwise

Arrays = Mapping[str, NDArray[np.generic]]

_ROLES = {"src": Arg.SRC, "weights": Arg.WEIGHTS, "dst": Arg.DST}
_PARTS = ("scale", "zero_point")


def check_case(line: str | Sequence[str], arrays: Arrays) -> Report:
    """The report on a case of the bench, or on a verbose line, of a product of integers.

    ``arrays`` are what the tensors mean, as floats, by name: ``src``, ``weights`` and, if the case
    has one that is not 0, ``bias``. ``src_scale``, ``src_zero_point``, ``weights_scale`` and so on
    have the shape of the attribute's tensor, or one value; those that are missing have the values
    that the line gives, or 1 and 0. Raises BadValue, InvalidArguments or Unimplemented.
    """
    case = _case(line)
    kind = description(case.driver)
    if kind is None or not isinstance(kind.operation.reference, ProductSpecification):
        what = f"--{case.driver.name} is no product of src and weights"
        raise Unimplemented(what, ["quantcheck looks at sums of products"])
    pd = create(case, kind).pd
    layer = _layer(case, pd, kind.operation.reference, arrays)
    return Report.of(case.repro, [examine(layer)])


def _case(line: str | Sequence[str]) -> Case:
    """The one case of a line."""
    tokens = [line] if isinstance(line, str) else list(line)
    if len(tokens) == 1 and is_verbose(tokens[0]):
        parsed = read(tokens[0])
        if not isinstance(parsed, OperationLine):
            raise InvalidArguments("CASE", tokens[0], "this line tells of no operation")
        tokens = operation_tokens(parsed)
    else:
        tokens = [part for token in tokens for part in token.split()]
    cases = list(Interpreter().cases(tokens))
    if len(cases) != 1:
        raise InvalidArguments("CASE", " ".join(tokens), f"expected one case, not {len(cases)}")
    return cases[0]


def _layer(case: Case, pd: PrimitiveDesc, reference: ProductSpecification, arrays: Arrays) -> Layer:
    desc = pd.desc
    if desc.has_runtime_values:
        raise InvalidArguments("CASE", case.repro, "sizes must be known")
    dims = {name: pd.arg_desc(argument).dims for name, argument in _ROLES.items()}
    shapes = {name: dims[name] for name in ("src", "weights")}
    if not pd.bias_desc.is_zero and "bias" in arrays:
        shapes["bias"] = pd.bias_desc.dims
    _check_names(arrays, shapes)
    values = {name: checked(name, arrays[name], shape) for name, shape in shapes.items()}
    schemes = {
        name: scheme
        for name, argument in _ROLES.items()
        if (scheme := _scheme(case, pd, name, argument, arrays)) is not None
    }
    if not {"src", "weights"} <= schemes.keys():
        types = f"{pd.src_desc.data_type} by {pd.weights_desc.data_type}"
        raise InvalidArguments("CASE", types, "expected integers, as in --dt=u8:s8:f32")
    letters = next(r.letters for r in desc.operation.roles if r.argument == Arg.WEIGHTS)
    return Layer(
        name=case.repro.split()[-1],
        operator=desc.kind,
        product=Product(partial(_compute, reference, desc), _spelled(letters, desc)),
        src=values["src"],
        weights=values["weights"],
        bias=_bias(values.get("bias"), dims["dst"]),
        schemes=schemes,
        names={name: Named(name, f"{name}_scale") for name in _ROLES},
        after=_after(pd),
    )


def _check_names(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    known = [*shapes, *(f"{role}_{part}" for role in _ROLES for part in _PARTS)]
    for name in arrays:
        if name not in known:
            rule = f"no such tensor; there are {', '.join(known)}"
            raise InvalidArguments("--data", name, rule, nearest(name, known))
    for name, shape in shapes.items():
        if name not in arrays:
            rule = f"must have {name} of shape {shape}, as floats"
            raise InvalidArguments("--data", ", ".join(arrays) or "nothing", rule)


def _compute(
    reference: ProductSpecification, desc: Description, src: Array, weights: Array
) -> Array:
    return reference.product(desc, {int(Arg.SRC): src, int(Arg.WEIGHTS): weights})


def _spelled(letters: str, desc: Description) -> str:
    """The letters of the weights, with that of groups where there are some."""
    grouped = desc.weights_desc.ndims > desc.src_desc.ndims
    return letters.replace("[g]", "g" if grouped else "")


def _bias(bias: Array | None, dst: tuple[int, ...]) -> Array | None:
    """As it is added to dst: of as many dimensions, or one value for each channel."""
    if bias is None or bias.ndim == len(dst):
        return bias
    return bias.reshape(1, -1, *[1] * (len(dst) - 2))


def _scheme(
    case: Case, pd: PrimitiveDesc, role: str, argument: Arg, arrays: Arrays
) -> Scheme | None:
    """How a tensor is stored; None where it is a float, or the s32 of the sums themselves."""
    desc = pd.arg_desc(argument)
    if desc.data_type.is_float or desc.data_type.bits > 16:
        return None
    given: list[Array] = []
    for part, specs, option, plain in (
        ("scale", pd.attr.scales, "attr-scales", 1.0),
        ("zero_point", pd.attr.zero_points, "attr-zero-points", 0.0),
    ):
        name, spec = f"{role}_{part}", specs.get(argument)
        if spec is not None and any(size != 1 for size in spec.groups):
            raise Unimplemented(f"{role} has groups of scales", ["one for a dimension or for all"])
        shape = spec.shape(desc.dims) if spec is not None else (1,) * desc.ndims
        entries = [entry for entry in case[option].items if entry.argument == argument]
        known = [float(entry.value) for entry in entries if entry.mask.common]
        given.append(_values(name, arrays, shape, known[0] if known else plain, spec is None))
    if not (given[0] > 0).all():
        raise InvalidArguments(f"{role}_scale", float(given[0].min()), "a scale is above 0")
    return Scheme(desc.data_type, given[0], given[1])


def _values(name: str, arrays: Arrays, shape: tuple[int, ...], plain: float, free: bool) -> Array:
    """One part of a scheme; a single value is that of all. Where the line says nothing of it
    (``free``), it may vary along one dimension."""
    if name not in arrays:
        return np.full(shape, plain)
    array = np.asarray(arrays[name])
    if array.size == 1:
        return np.full(shape, checked(name, array, array.shape).item())
    if free:
        rule = f"one value, as the line does not say along which dimension it varies: --attr-{name}"
        raise InvalidArguments(name, array.shape, rule.rpartition(":")[0])
    size = (int(np.prod(shape)),)
    return checked(name, array.reshape(-1), size).reshape(shape)


def _after(pd: PrimitiveDesc) -> Callable[[Array], Array]:
    """What post-ops make of a result; those that need no other tensors."""
    post_ops = tuple(pd.attr.post_ops)
    strange = [entry for entry in post_ops if not isinstance(entry, PostOpEltwise)]
    if strange:
        name = type(strange[0]).__name__.removeprefix("PostOp").lower()
        raise Unimplemented(f"quantcheck of the post-op {name}", ["eltwise ones are taken"])
    return lambda values: apply_post_ops(values, post_ops, {})
