"""Traced scalars: what a Python function is called with, once, to see what it computes."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn

import numpy as np

from dnnl.errors import Error, InvalidArguments
from dnnl.types import typed
from dnnl.types.dtype import DataType, DataTypeLike, any_of
from dnnl.types.expression import (
    BITCAST,
    CAST,
    CONSTANT,
    FUNCTIONS,
    LOGIC,
    PARAMETER,
    Expression,
    Function,
    Step,
)
from dnnl.types.kinds import coerce

_LIBRARY = str(Path(__file__).resolve().parents[1])

Number = float | int


_UFUNCS: Mapping[str, str] = {
    **{fn.__name__: name for name, fn in FUNCTIONS.items() if isinstance(fn, np.ufunc)},
    "rint": "round", "remainder": "mod", "bitwise_and": "and", "bitwise_or": "or",
    "bitwise_xor": "xor", "invert": "not", "left_shift": "shift_left", "right_shift": "shift_right",
}  # fmt: skip
"""The functions by NumPy's names."""


class Trace:
    """The steps of a function so far; equal ones are one."""

    def __init__(self) -> None:
        self.steps: dict[Step, int] = {}

    def parameters(self, types: Sequence[DataType | None]) -> list[Scalar]:
        """As many parameters as there are ``types``, which are those of a typed expression."""
        pairs = enumerate(types)
        return [self.add(Step(PARAMETER, (), str(place), kind)) for place, kind in pairs]

    def add(self, step: Step) -> Scalar:
        """The value of a step."""
        return Scalar(self, self.steps.setdefault(step, len(self.steps)), step)

    def scalar(self, value: Scalar | Number) -> Scalar:
        """A value as a step of this trace."""
        if isinstance(value, Scalar):
            if value.trace is not self:
                _refuse("a value of one function is used in another")
            return value
        return self.constant(value)

    def constant(self, value: Number, kind: DataType | None = None) -> Scalar:
        """A number, in a typed expression of a type that has it."""
        whole = kind is not None and kind.is_integer
        return self.add(Step(CONSTANT, (), str(int(value)) if whole else float(value).hex(), kind))

    def expression(self, parameters: int, result: Scalar | Number) -> Expression:
        """A result as a function of the parameters: the steps that it depends on."""
        last = self.scalar(result).index
        steps = list(self.steps)
        wanted = {last}
        for index in range(last, -1, -1):
            if index in wanted:
                wanted.update(steps[index].sources)
        places = {index: place for place, index in enumerate(sorted(wanted))}
        return Expression(
            parameters,
            tuple(
                replace(steps[index], sources=tuple(places[s] for s in steps[index].sources))
                for index in places
            ),
        )


class Scalar:
    """A number, or a truth value, that only the execution of a kernel knows.

    It has Python's operators, and the functions of `dnnl.math` take it. It cannot be asked for its
    value: `if`, `and` and `float()` are errors that say what to use instead.
    """

    __slots__ = ("index", "step", "trace")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, index: int, step: Step) -> None:
        self.trace, self.index, self.step = trace, index, step

    def __add__(self, other: Scalar | Number) -> Scalar:
        return apply("add", self, other)

    def __radd__(self, other: Number) -> Scalar:
        return apply("add", other, self)

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return apply("sub", self, other)

    def __rsub__(self, other: Number) -> Scalar:
        return apply("sub", other, self)

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return apply("mul", self, other)

    def __rmul__(self, other: Number) -> Scalar:
        return apply("mul", other, self)

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        return apply("div", self, other)

    def __rtruediv__(self, other: Number) -> Scalar:
        return apply("div", other, self)

    def __pow__(self, other: Scalar | Number) -> Scalar:
        return apply("pow", self, other)

    def __rpow__(self, other: Number) -> Scalar:
        return apply("pow", other, self)

    def __neg__(self) -> Scalar:
        return apply("neg", self)

    def __pos__(self) -> Scalar:
        return self

    def __abs__(self) -> Scalar:
        return apply("abs", self)

    def __round__(self, ndigits: int | None = None) -> Scalar:
        if ndigits is not None:
            _refuse("round() has no digits here", "round(x * 10) / 10, for example")
        return apply("round", self)

    def __floor__(self) -> Scalar:
        return apply("floor", self)

    def __ceil__(self) -> Scalar:
        return apply("ceil", self)

    def __lt__(self, other: Scalar | Number) -> Scalar:
        return apply("lt", self, other)

    def __le__(self, other: Scalar | Number) -> Scalar:
        return apply("le", self, other)

    def __gt__(self, other: Scalar | Number) -> Scalar:
        return apply("gt", self, other)

    def __ge__(self, other: Scalar | Number) -> Scalar:
        return apply("ge", self, other)

    def __eq__(self, other: object) -> Scalar:  # type: ignore[override]
        return apply("eq", self, other)

    def __ne__(self, other: object) -> Scalar:  # type: ignore[override]
        return apply("ne", self, other)

    def __and__(self, other: Scalar | int) -> Scalar:
        return apply("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Scalar | int) -> Scalar:
        return apply("or", self, other)

    __ror__ = __or__

    def __xor__(self, other: Scalar | int) -> Scalar:
        return apply("xor", self, other)

    __rxor__ = __xor__

    def __mod__(self, other: Scalar | int) -> Scalar:
        return apply("mod", self, other)

    def __rmod__(self, other: int) -> Scalar:
        return apply("mod", other, self)

    def __lshift__(self, other: Scalar | int) -> Scalar:
        return apply("shift_left", self, other)

    def __rlshift__(self, other: int) -> Scalar:
        return apply("shift_left", other, self)

    def __rshift__(self, other: Scalar | int) -> Scalar:
        return apply("shift_right", self, other)

    def __rrshift__(self, other: int) -> Scalar:
        return apply("shift_right", other, self)

    def __invert__(self) -> Scalar:
        return apply("not", self)

    def astype(self, data_type: DataTypeLike) -> Scalar:
        """The number as another type, in a typed function: integers keep their lower bits, floats
        lose what stands behind the point and become the nearest integer that there is."""
        return self._as(CAST, data_type)

    def view(self, data_type: DataTypeLike) -> Scalar:
        """The bits of the number as another type of as many bits, in a typed function."""
        return self._as(BITCAST, data_type)

    def _as(self, step: str, data_type: DataTypeLike) -> Scalar:
        own = self.step.data_type
        if own is None:
            _refuse("its type is that of the kernel", "scalars of ExactDesc have types")
        kind = coerce(DataType, data_type, "data_type")
        row = typed.STEPS[step]
        if kind not in row.allowed:
            name = "astype" if step == CAST else "view"
            _refuse(f"{name} makes no {kind}", f"it makes {any_of(row.allowed)}")
        if not row.signature.fits(kind, own):
            _refuse(f"{own} as {kind}: {row.signature.rule}", "x.astype(kind) converts")
        return self if kind is own else self.trace.add(Step(step, (self.index,), data_type=kind))

    def __bool__(self) -> bool:  # noqa: PLE0304 - it never returns
        hint = "dnnl.math.where(condition, a, b) chooses; &, | and ~ join conditions"
        _refuse("if, while, and, or, not and chained comparisons need a value now", hint)

    def __float__(self) -> float:
        _refuse("its value is not known now", "functions of dnnl.math take it, as exp and sqrt")

    def __array_ufunc__(
        self, ufunc: object, method: str, *sources: object, **more: object
    ) -> Scalar:
        """NumPy's operators, which its own scalars on the left come with, and its functions."""
        name = str(getattr(ufunc, "__name__", ufunc))
        if name not in _UFUNCS or method != "__call__" or more:
            _refuse(f"numpy.{name} takes no traced scalar", "functions of dnnl.math do")
        return apply(_UFUNCS[name], *sources)


def apply(name: str, *sources: object) -> Scalar:
    """The function ``name`` of scalars and numbers, one of which is traced; a bool may stand where
    a truth value does."""
    traced = next(source for source in sources if isinstance(source, Scalar))
    if any(isinstance(s, Scalar) and s.step.data_type is not None for s in sources):
        return _apply_typed(traced.trace, name, sources)
    if name not in FUNCTIONS:
        _refuse(f"{name} is computed of integers alone", "scalars of ExactDesc have types")
    scalars = []
    for place, source in enumerate(sources):
        wants_truth = name in LOGIC or (name == "where" and place == 0)
        known = source if isinstance(source, Scalar) else _number(source, name)
        scalar = traced.trace.scalar(known)
        if wants_truth and isinstance(source, bool | np.bool_):
            scalar = scalar != 0.0
        if wants_truth != scalar.step.is_truth:
            what = "truth values" if wants_truth else "numbers"
            _refuse(f"{name} is for {what}", "x != 0 is a truth value, where(t, 1, 0) a number")
        scalars.append(scalar)
    return traced.trace.add(Step(name, tuple(scalar.index for scalar in scalars)))


def _apply_typed(trace: Trace, name: str, sources: Sequence[object]) -> Scalar:
    """A function of scalars with types, each of which a number takes on."""
    row = typed.STEPS[name]
    branches = sources[1:] if name == "where" else sources
    types = (source.step.data_type for source in branches if isinstance(source, Scalar))
    kind = next(types, None)
    if kind is None:
        _refuse(f"{name} of numbers alone has no type", "condition.astype('s32') is 1 or 0")
    scalars = [
        trace.scalar(s if isinstance(s, Scalar) else _constant(trace, s, kind)) for s in sources
    ]
    given = [scalar.step.data_type or kind for scalar in scalars]
    result = typed.result_of(name, given)
    if not row.signature.fits(result, *given):
        rule = f"{name}: {row.signature.rule.replace('dst', 'the result')}"
        _refuse(f"{rule}, and has {', '.join(map(str, given))}", "x.astype('s32') converts")
    if given[-1] not in row.allowed:
        fitting = DataType.s32 if DataType.s32 in row.allowed else DataType.f32
        rule = f"{name} takes {any_of(row.allowed)}, not {given[-1]}"
        _refuse(rule, f"x.astype('{fitting}') converts")
    return trace.add(Step(name, tuple(s.index for s in scalars), data_type=result))


def _constant(trace: Trace, value: object, kind: DataType) -> Scalar:
    """A number of a type, in which it must be a number."""
    number = _number(value, "a typed function")
    if isinstance(value, int | np.integer | np.bool_):
        number = int(value)
    if kind.is_integer and not (kind.min <= number <= kind.max and number == int(number)):
        _refuse(f"{value} is no number of type {kind}", "x.astype('s64') holds more")
    return trace.constant(number, kind)


def computed(name: str, *sources: object) -> float:
    """The function ``name`` of plain numbers."""
    with np.errstate(all="ignore"):
        return float(FUNCTIONS[name](*(np.float64(_number(source, name)) for source in sources)))


def _number(value: object, name: str) -> float:
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        _refuse(f"{name} takes traced scalars and numbers, not {type(value).__name__}")


class _Untraceable(Error):
    """What a function asks of a traced scalar that it cannot give."""

    def __init__(self, rule: str, hint: str, line: str) -> None:
        self.rule = f"{rule} (at {line})" if line else rule
        self.hint = hint
        super().__init__(f"{self.rule}; {hint}" if hint else self.rule)


def _refuse(rule: str, hint: str = "") -> NoReturn:
    raise _Untraceable(rule, hint, _line(sys._getframe(1)))


def _line(frame: FrameType | None) -> str:
    """The innermost line that is not the library's own."""
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        frame = frame.f_back
    return "" if frame is None else _spelled(frame.f_code.co_filename, frame.f_lineno)


def _spelled(path: str, number: int) -> str:
    source = linecache.getline(path, number).strip()
    return f"{Path(path).name}:{number}: {source}" if source else f"{Path(path).name}:{number}"


def traced(fn: object, parameters: int, types: Sequence[DataType] | None = None) -> Function:
    """What ``fn`` computes of so many traced scalars, with its name; raises as `trace` does, and
    where ``fn`` cannot be called."""
    if not callable(fn):
        raise InvalidArguments("fn", fn, "expected a function of traced scalars")
    return Function(trace(fn, parameters, types), name_of(fn))


def trace(
    fn: Callable[..., object], parameters: int, types: Sequence[DataType] | None = None
) -> Expression:
    """What ``fn`` computes of so many traced scalars; with their ``types``, a typed expression.

    Raises `InvalidArguments`, with the line of the function, where it asks for more than a traced
    scalar can give, or gives something else than a number.
    """
    name = name_of(fn)
    made = Trace()
    scalars = made.parameters(types or [None] * parameters)
    _check_parameters(fn, name, parameters)
    try:
        result = fn(*scalars)
    except _Untraceable as error:
        rule = f"cannot be traced: {error.rule}"
        raise InvalidArguments("fn", name, rule, error.hint) from None
    except TypeError as error:
        where = _innermost(error.__traceback__)
        rule = f"cannot be traced: {error}{where}"
        raise InvalidArguments(
            "fn", name, rule, "operators and dnnl.math take traced scalars"
        ) from error
    if not isinstance(result, Scalar | int | float) or (types and not isinstance(result, Scalar)):
        expected = "a traced scalar" if types else "a number"
        rule = f"must return {expected}, and returned {type(result).__name__}"
        raise InvalidArguments("fn", name, rule)
    value = made.scalar(result)
    if value.step.is_truth:
        rule = "must return a number, and returned a truth value"
        raise InvalidArguments("fn", name, rule, "dnnl.math.where(condition, 1, 0)")
    return made.expression(parameters, value)


def replayed(expression: Expression, sources: Sequence[Scalar | Number]) -> Scalar:
    """An expression of scalars and numbers, as part of the function that is being traced. Steps
    without types take on that of the scalars."""
    traced = [source for source in sources if isinstance(source, Scalar)]
    if not traced:
        rule = "expected traced scalars: this is called within a function that is traced"
        raise InvalidArguments("scalars", tuple(sources), rule, "append_function traces one")
    made, kind = traced[0].trace, traced[0].step.data_type
    alike = all(source.step.data_type is kind for source in traced)
    if expression.steps[-1].data_type is None and not (alike and (kind is None or kind.is_float)):
        _refuse("a function of floats takes floats of one type", "x.astype('f32') converts")
    values: list[Scalar] = []
    for step in expression.steps:
        if step.name == PARAMETER:
            source = sources[int(step.detail)]
            number = source if isinstance(source, Scalar) else made.constant(source, kind)
            values.append(made.scalar(number))
        else:
            places = tuple(values[source].index for source in step.sources)
            own = step.data_type or (DataType.boolean if kind and step.is_truth else kind)
            values.append(made.add(replace(step, sources=places, data_type=own)))
    return values[-1]


def name_of(fn: object) -> str:
    """What a function is called in messages."""
    return str(getattr(fn, "__name__", type(fn).__name__))


def _check_parameters(fn: Callable[..., object], name: str, count: int) -> None:
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # of C, without one
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        rule = f"is called with the value and {count - 1} operands: {error}"
        raise InvalidArguments("fn", f"{name}{signature}", rule) from None


def _innermost(traceback: TracebackType | None) -> str:
    line = ""
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if not path.startswith(_LIBRARY):
            line = f" (at {_spelled(path, traceback.tb_lineno)})"
        traceback = traceback.tb_next
    return line
