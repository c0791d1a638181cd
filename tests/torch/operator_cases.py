"""PyTorch's operator database through the backend, beside eager PyTorch."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from functorch.compile import aot_function, make_boxed_func
from torch.utils import _pytree as pytree

from dnnl.torch import private
from dnnl.torch.aten.table import TRANSLATIONS
from dnnl.torch.partition import Decision, partitioned

OURS, PARTLY, LEFT, REFUSED, WRONG, RAW = "dnnl", "partly", "PyTorch", "refused", "wrong", "raw"
DTYPES = (torch.float32, torch.bfloat16, torch.int64)


def operators() -> Sequence[Any]:
    """The records of ``torch.testing._internal``, which import the package expecttest for tests of
    PyTorch's own: an empty module does where it is not installed."""
    if importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = object  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    found: Sequence[Any] = op_db
    return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """Who computes a sample of an operator, and why it is not dnnl; ``left`` are the operators of
    ATen that are PyTorch's."""

    state: str
    reason: str = ""
    left: tuple[tuple[str, str], ...] = ()


def samples(record: Any, dtype: torch.dtype, most: int) -> Iterator[Any]:
    """The first ``most`` samples of an operator."""
    torch.manual_seed(0)
    return islice(iter(record.sample_inputs("cpu", dtype)), most)


def outcome(function: Callable[..., Any], sample: Any, *, contents: bool = True) -> Outcome:
    """What becomes of one sample; without ``contents`` those of results are not compared."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [n for n, own in enumerate(leaves) if isinstance(own, torch.Tensor)]
    tensors = [leaves[n].detach() for n in places]

    def call(*given: torch.Tensor) -> Any:
        full = list(leaves)
        for place, own in zip(places, given, strict=True):
            full[place] = own
        first, args, kwargs = pytree.tree_unflatten(full, spec)
        return function(first, *args, **kwargs)

    found: dict[str, Decision] = {}

    def report(decisions: Sequence[Decision]) -> None:
        found.update({own.name: own for own in decisions})

    def compiler(module: torch.fx.GraphModule, _: Any) -> Any:
        return make_boxed_func(partitioned(module, (), report))

    def traced(compiler: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        function = aot_function(
            call,
            fw_compiler=compiler,
            inference_compiler=compiler,
            decompositions=private.decompositions(TRANSLATIONS),
        )
        return function(*_copies(tensors))

    with torch.no_grad():
        torch.manual_seed(0)
        try:
            expected = call(*_copies(tensors))
        except Exception as error:  # of the sample: PyTorch has no such kernel
            return Outcome(REFUSED, f"eager: {type(error).__name__}")
        try:
            actual = traced(compiler)
        except Exception as error:
            if not found:
                return Outcome(REFUSED, f"traced: {type(error).__name__}")
            return Outcome(RAW, f"{type(error).__name__}: {error}")
        if not contents:
            actual, expected = pytree.tree_map(torch.zeros_like, (actual, expected))
        problem = _difference(actual, expected, lambda: call(*_wide(tensors)))
        if problem:  # what is traced may draw other random numbers
            problem = _compared(actual, traced(lambda module, _: make_boxed_func(module)))
    left = tuple((own.operator, own.reason) for own in found.values() if own.where == "torch")
    if problem:
        return Outcome(WRONG, problem, left)
    if not left:
        return Outcome(OURS)
    return Outcome(LEFT if len(left) == len(found) else PARTLY, left[0][1], left)


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [own.clone() if own.is_contiguous() else own for own in tensors]


def _wide(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [own.float() if own.dtype == torch.bfloat16 else own for own in tensors]


def _difference(actual: Any, expected: Any, in_f32: Callable[[], Any]) -> str:
    """How results differ; "" where they do not. Those in bf16 may be closer to f32 than eager's."""
    problem = _compared(actual, expected)
    if not problem or "bfloat16" not in str(expected):
        return problem
    try:
        wide = in_f32()
    except Exception:
        return problem
    return problem if _compared(actual, wide, dtypes=False) else ""


def _compared(actual: Any, expected: Any, *, dtypes: bool = True) -> str:
    pairs = zip(*(pytree.tree_leaves(own) for own in (actual, expected)), strict=True)
    for ours, theirs in pairs:
        if not isinstance(theirs, torch.Tensor):
            if ours != theirs:
                return f"{ours} instead of {theirs}"
            continue
        if dtypes and ours.stride() != theirs.stride() and theirs.numel() > 1:
            return f"strides {ours.stride()} instead of {theirs.stride()}"
        limits = {"rtol": 1e-5, "atol": 1e-5} if ours.dtype == torch.float32 else {}
        if ours.dtype == torch.bfloat16:
            sizes = theirs[theirs.isfinite()].abs()
            scale = float(sizes.max()) if sizes.numel() else 0.0
            limits = {"rtol": 1.6e-2, "atol": 2**-8 * scale}
        try:
            torch.testing.assert_close(
                ours, theirs, equal_nan=True, check_dtype=dtypes, check_stride=False, **limits
            )
        except AssertionError as error:
            return " ".join(str(error).split())
    return ""
