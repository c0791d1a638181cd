"""PyTorch's operator database through the backend, beside eager PyTorch."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from functorch.compile import aot_function, make_boxed_func
from torch.utils import _pytree as pytree

from dnnl.torch import private
from dnnl.torch.aten.table import TRANSLATIONS
from dnnl.torch.partition import ONLY_MOVES, Decision, partitioned

OURS, PARTLY, LEFT, REFUSED, WRONG, RAW = "dnnl", "partly", "PyTorch", "refused", "wrong", "raw"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "int64": torch.int64}
_SMALL = (torch.bfloat16, torch.float16)
MOST = 6
"""Samples of an operator in one type: all, up to 900 of some, take more than an hour."""


def database(name: str) -> Any:
    """A module of ``torch.testing._internal``.

    They import the package expecttest for tests of PyTorch's own: an empty module does where it is
    not installed.
    """
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = object  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    return importlib.import_module(f"torch.testing._internal.{name}")


@cache
def operators() -> dict[str, Any]:
    """The records of ``torch.testing._internal`` by name."""
    every = database("common_methods_invocations").op_db
    return {f"{own.name}.{own.variant_test_name}".rstrip("."): own for own in every}


def spread(samples: Sequence[Any], most: int) -> Sequence[Any]:
    """So many samples, or all, at equal distances."""
    count = min(most, len(samples))
    return [samples[place * len(samples) // count] for place in range(count)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Who computes a sample of an operator, and why it is not dnnl; ``left`` are the operators of
    ATen that are PyTorch's, with reasons."""

    state: str
    reason: str = ""
    left: tuple[tuple[str, str], ...] = ()


def outcomes(name: str, dtype: torch.dtype) -> list[Outcome]:
    """What becomes of samples of an operator."""
    record = operators()[name]
    if dtype not in record.dtypes:
        return []
    contents = "empty" not in name  # which leave the contents open
    return [Case(record.op, sample, contents).outcome() for sample in samples(record, dtype)]


def samples(record: Any, dtype: torch.dtype, **options: Any) -> Sequence[Any]:
    """Samples of an operator, spread over all."""
    torch.manual_seed(0)
    return spread(list(record.sample_inputs("cpu", dtype, **options)), MOST)


class Case:
    """One sample; without ``contents`` those of results are not compared."""

    def __init__(self, function: Callable[..., Any], sample: Any, contents: bool = True) -> None:
        self._function, self._contents = function, contents
        self._leaves, self._spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self._places = [n for n, own in enumerate(self._leaves) if isinstance(own, torch.Tensor)]
        self._tensors = [self._leaves[n].detach() for n in self._places]
        self._found: dict[str, Decision] = {}

    @torch.no_grad()
    def outcome(self) -> Outcome:
        """Who computes it."""
        torch.manual_seed(0)
        try:
            expected = self._call(*self._copies())
        except Exception as error:  # PyTorch has no such kernel
            return Outcome(REFUSED, f"eager: {type(error).__name__}")
        try:
            actual = self._traced(lambda module, _: partitioned(module, (), self._report))
        except Exception as error:
            if not self._found:
                return Outcome(REFUSED, f"traced: {type(error).__name__}")
            return Outcome(RAW, f"{type(error).__name__}: {error}")
        try:
            problem = self._problem(actual, expected)
        except Exception as error:  # results that PyTorch does not compare
            return Outcome(REFUSED, f"compared: {type(error).__name__}: {error}")
        return computed(self._found.values(), problem)

    def _call(self, *given: torch.Tensor) -> Any:
        """The operator on other tensors than those of the sample."""
        full = list(self._leaves)
        for place, own in zip(self._places, given, strict=True):
            full[place] = own
        first, args, keywords = pytree.tree_unflatten(full, self._spec)
        return self._function(first, *args, **keywords)

    def _traced(self, compiler: Callable[..., Any]) -> Any:
        torch.manual_seed(0)

        def boxed(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
            return make_boxed_func(compiler(module, inputs))

        function = aot_function(
            self._call,
            fw_compiler=boxed,
            inference_compiler=boxed,
            decompositions=private.decompositions(TRANSLATIONS),
        )
        return function(*self._copies())

    def _report(self, decisions: Sequence[Decision]) -> None:
        self._found.update({own.name: own for own in decisions})

    def _copies(self) -> list[torch.Tensor]:
        """The tensors, where they are mutated not those of the sample."""
        return [own.clone() if own.is_contiguous() else own for own in self._tensors]

    def _problem(self, actual: Any, expected: Any) -> str:
        """How results differ; "" where they do not. What is traced may draw other random numbers
        and have other strides, and rounded results may be closer to those of f64 than eager's."""
        if not self._contents:
            actual, expected = pytree.tree_map(torch.zeros_like, (actual, expected))
        problem = compared(actual, expected)
        if not problem:
            return ""
        plain = self._traced(lambda module, _: module)
        if not self._contents:
            plain = pytree.tree_map(torch.zeros_like, plain)
        problem = compared(actual, plain)
        if not problem or (unlike(actual, expected) and unlike(actual, plain)):
            return problem
        try:
            torch.manual_seed(0)
            exact = self._call(*map(wide, self._tensors))
        except Exception:  # of mixed types
            return problem
        return compared(actual, exact, types=False) and farther(actual, (expected, plain), exact)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor, of floats in f64."""
    return tensor.to(torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)


def computed(decisions: Collection[Decision], problem: str) -> Outcome:
    """The outcome of a sample that was computed, which ``problem`` says is wrong, unless it is
    empty."""
    left = tuple(
        (own.operator, own.reason)
        for own in decisions
        if own.where == "torch" and own.reason != ONLY_MOVES
    )
    if problem:
        return Outcome(WRONG, problem, left)
    if not left:
        return Outcome(OURS)
    return Outcome(LEFT if len(left) == len(decisions) else PARTLY, left[0][1], left)


def _dense(pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Tensors with strides instead of sparse ones."""
    for ours, theirs in pairs:
        sparse = isinstance(theirs, torch.Tensor) and theirs.layout != torch.strided
        yield (ours.to_dense(), theirs.to_dense()) if sparse else (ours, theirs)


def unlike(actual: Any, expected: Any) -> str:
    """How types, sizes and strides of results differ from those of eager; "" where they do not.

    Strides of axes of one element may be any: views foretell others than eager has.
    """
    pairs = zip(*(pytree.tree_leaves(own) for own in (actual, expected)), strict=True)
    for ours, theirs in _dense(pairs):
        if not isinstance(theirs, torch.Tensor):
            continue
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            kinds = [f"{own.dtype} {tuple(own.shape)}" for own in (ours, theirs)]
            return " instead of ".join(kinds)
        if not theirs.numel():
            continue
        axes = zip(theirs.shape, ours.stride(), theirs.stride(), strict=True)
        if any(size > 1 and own != other for size, own, other in axes):
            return f"strides {ours.stride()} instead of {theirs.stride()}"
    return ""


def compared(
    actual: Any, expected: Any, *, types: bool = True, strides: bool = True, atol: float = 1e-5
) -> str:
    """How results differ from those of eager; "" where they do not. ``atol`` is that of f32."""
    problem = unlike(actual, expected) if types and strides else ""
    if problem:
        return problem
    pairs = zip(*(pytree.tree_leaves(own) for own in (actual, expected)), strict=True)
    for ours, theirs in _dense(pairs):
        if not isinstance(theirs, torch.Tensor):
            if ours != theirs:
                return f"{ours} instead of {theirs}"
            continue
        limits: dict[str, Any] = {"rtol": 1e-5, "atol": atol} if ours.dtype == torch.float32 else {}
        if ours.dtype in _SMALL:
            sizes = theirs[theirs.isfinite()].abs()
            scale = float(sizes.max()) if sizes.numel() else 0.0
            epsilon = torch.finfo(ours.dtype).eps
            limits = {"rtol": 2 * epsilon, "atol": max(atol, epsilon / 2 * scale)}
        try:
            torch.testing.assert_close(
                ours, theirs, equal_nan=True, check_dtype=types, check_stride=False, **limits
            )
        except AssertionError as error:
            return " ".join(str(error).split())
    return ""


def farther(actual: Any, others: Sequence[Any], exact: Any) -> str:
    """Which result is more than twice as far from that of f64 as all others; "" where none is.

    Two orders of one sum round differently, by about as much.
    """
    every = [pytree.tree_leaves(own) for own in (exact, actual, *others)]
    for place, (true, *found) in enumerate(zip(*every, strict=True)):
        if true is not None:
            ours, *theirs = (_distance(own, true) for own in found)
            if not ours <= 2 * max(theirs):
                return f"result {place} is {ours} from that of f64, PyTorch's {max(theirs)}"
    return ""


def _distance(found: Any, exact: Any) -> float:
    own, true = (torch.as_tensor(each).to(torch.complex128) for each in (found, exact))
    if own.shape != true.shape:
        return math.inf
    same = (own == true) | (own.isnan() & true.isnan())
    apart = torch.where(same, 0, (own - true).abs())
    return float(apart.nan_to_num(math.inf).max()) if apart.numel() else 0.0
