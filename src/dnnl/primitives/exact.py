"""Functions of elements that are computed in their own types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.pointwise import exact as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    DDT,
    DTAG,
    EACH_STAG,
    INPLACE,
    Driver,
    auxiliary,
    sources,
    types,
)
from dnnl.language.problem import Dims
from dnnl.language.values import MANY, one_of
from dnnl.primitives.checks import read_sources, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_nest
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Exact
from dnnl.reference.exact import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.expression import PARAMETER, Expression, Function
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.scalar import traced
from dnnl.types.size import broadcasts
from dnnl.types.typed import FUNCTIONS, STEPS, expression_of


@dataclass(frozen=True, init=False)
class ExactDesc(Desc):
    """dst = function(srcs), elementwise, with each step in the type of its operands.

    Integers of 8 to 64 bits wrap. ``div`` truncates; division by zero gives 0. ``mod`` has the sign
    of the divisor and ``remainder`` that of the dividend, also for floats. Comparisons give
    booleans, by which ``where`` selects. ``cast`` converts between all types: integers keep their
    lower bits, floats are truncated and saturated to integers. ``bitcast`` reinterprets the bits
    as a type of the same size. Steps of f32, bf16 and f16 are computed in f32, those of f64 in
    f64, and each result is rounded to its type.

    ``function`` is one of these names, or a Python function of a traced scalar for each source: its
    operators are these functions (``/`` is ``div``, ``%`` is ``mod``), its numbers take the type of
    what they meet, ``x.astype("s64")`` is ``cast``, ``x.view("s32")`` is ``bitcast``, and the
    functions of `dnnl.math` take scalars of floats. It is called once, when it is described;
    descriptions are equal if theirs compute the same.

    >>> import dnnl.math
    >>> md = MemoryDesc((2, 3), "s32")
    >>> desc = ExactDesc(lambda a, b: dnnl.math.where(a < b, a * b, a % 7), [md, md], md)
    >>> print(desc.expression)
    where(lt(x, y), mul(x, y), mod(x, 7))

    Arguments MULTIPLE_SRC + i, DST. All have the same rank; a source of size 1 in a dimension is
    broadcast along that of dst. dst may be ``any``, and may be the buffer of the first source.
    """

    function: str | Function
    src_descs: tuple[MemoryDesc, ...]
    dst_desc: MemoryDesc

    def __init__(
        self,
        function: str | Callable[..., object] | Function,
        src_descs: Sequence[MemoryDesc],
        dst_desc: MemoryDesc,
    ) -> None:
        sources = read_sources(src_descs)
        if callable(function):
            kinds = [desc.data_type for desc in sources]
            function = traced(function, len(kinds), kinds)
        self._fill(function=function, src_descs=sources, dst_desc=dst_desc)

    def check(self) -> None:
        """As many sources as the function has, whose types and dims go together."""
        if isinstance(self.function, Function):
            self._check_traced(self.function.expression)
        else:
            self._check_named(self.function)
        dims = self.dst_desc.dims
        for number, desc in enumerate(self.src_descs):
            fits = len(desc.dims) == len(dims) and all(
                broadcasts(extent, full) for extent, full in zip(desc.dims, dims, strict=True)
            )
            if not fits:
                rule = f"each dimension must be 1 or that of dst, which is {dims}"
                raise InvalidArguments(f"src_descs[{number}]", desc.dims, rule)

    def _check_named(self, function: str) -> None:
        signature, given = STEPS[FUNCTIONS[function]].signature, self.src_descs
        if len(given) != signature.sources:
            rule = f"{function} takes {signature.sources} sources, not {len(given)}"
            raise InvalidArguments("src_descs", _listed(given), rule)
        kinds = [desc.data_type for desc in (self.dst_desc, *given)]
        if not signature.fits(*kinds):
            rule = f"{function}: {signature.rule}; src_descs have {_listed(kinds[1:])}"
            raise InvalidArguments("dst_desc", str(kinds[0]), rule)

    def _check_traced(self, expression: Expression) -> None:
        """It was traced with the types of the tensors."""
        given = [desc.data_type for desc in self.src_descs]
        parameters = [step for step in expression.steps if step.name == PARAMETER]
        wanted = {int(step.detail): step.data_type for step in parameters}
        if expression.parameters != len(given) or any(
            given[place] is not kind for place, kind in wanted.items()
        ):
            rule = f"{self.function} is a function of {expression.parameters} other sources"
            raise InvalidArguments("src_descs", _listed(given), rule)
        kind = expression.steps[-1].data_type
        if self.dst_desc.data_type is not kind:
            rule = f"{self.function} gives {kind}"
            raise InvalidArguments("dst_desc", str(self.dst_desc.data_type), rule)

    @property
    def expression(self) -> Expression:
        """What is computed, in steps that have types."""
        if isinstance(self.function, Function):
            return self.function.expression
        kinds = [desc.data_type for desc in (self.dst_desc, *self.src_descs)]
        return expression_of(self.function, kinds)

    @property
    def problem(self) -> str:
        """The dims of the sources."""
        return ":".join(spelled(source.dims) for source in self.src_descs)


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def _nest(desc: ExactDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(kernel.configure, desc.expression, desc.src_descs, desc.dst_desc)
    return plan_nest(desc, attr, isa, configure, kernel.build)


def _sources(case: CaseValues) -> tuple[MemoryDesc, ...]:
    dims = case.shapes.padded
    kinds, tags = case.spread("sdt", len(dims)), case.spread("stag", len(dims))
    return tuple(map(tensor, dims, kinds, tags))


ExactDesc.operation = Operation(
    kind="exact",
    summary="exact: a function of elements in their own types",
    driver=Driver(
        "exact",
        (
            types("sdt", "s32", sources, MANY), DDT.but("s32"), EACH_STAG, DTAG,
            auxiliary("alg", "add", one_of(*FUNCTIONS), FUNCTIONS).shown(), *ATTRIBUTES, INPLACE,
        ),
        Dims(1, 3),
    ),
    roles=(
        Role(Arg.MULTIPLE_SRC, "src", "src_descs", reads=FORWARD, many=True, case=_sources),
        Role(
            Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_descs",),
            case=lambda case: tensor(case.shapes.result, case["ddt"], case["dtag"]),
        ),
    ),
    parameters=(Parameter("function", Exact(tuple(FUNCTIONS)), lambda case: case["alg"], "alg"),),
    in_place=((Arg.DST, Arg.MULTIPLE_SRC),),
    reference=SPECIFICATION,
    examples=(
        "--sdt=s64 --ddt=s64 --stag=axb --alg=mul 3x19x5:1x19x5",
        "--sdt=s8 --ddt=s8 --alg=div 3x19x5:3x19x5",
        "--sdt=u16 --ddt=boolean --alg=less 3x19:3x19",
        "--sdt=boolean:s16:s16 --ddt=s16 --alg=where 3x1:3x19:1x19",
        "--sdt=f32 --ddt=u64,s32,s8,boolean --alg=cast 3x19",
        "--sdt=s16 --ddt=bf16,u16 --alg=bitcast 3x19",
    ),
    implementations=(Implementation("nest", _nest),),
)  # fmt: skip
