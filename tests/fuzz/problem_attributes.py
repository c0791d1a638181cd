"""Strategies for the attributes of a case, as texts of ``dnnl bench``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from dnnl.primitives.operation import Operation
from dnnl.types.arg import Arg

Texts = st.SearchStrategy[str]

_ARGUMENTS = {
    Arg.SRC: "src", Arg.SRC_1: "src1", Arg.WEIGHTS: "wei", Arg.DST: "dst",
    Arg.MULTIPLE_SRC: "msrc0",
}  # fmt: skip
_MASKS = ("per_oc", "per_dim_0", "per_dim_1", "per_dim_01", "per_ocic", "per_tensor", "2", "3")
_UNARY = (
    "relu", "relu:0.5", "tanh", "abs", "linear:2:1", "clip:-1:1", "logistic", "square", "swish:1",
    "gelu_tanh", "gelu_erf", "hardswish:0.167:0.5", "elu:1", "hardsigmoid:0.2:0.5", "soft_relu:1",
    "clip_v2:-2:2", "mish", "exp", "round",
)  # fmt: skip
_BINARY = ("add", "mul", "max", "min", "sub", "div", "ge", "lt", "eq", "ne", "select")


def _entries(entry: Callable[[Operation], Texts], most: int) -> Callable[[Operation, int], Texts]:
    def made(operation: Operation, _: int) -> Texts:
        return st.lists(entry(operation), min_size=1, max_size=most).map("+".join)

    return made


def _arguments(operation: Operation) -> Texts:
    arguments = {role.argument for role in operation.roles}
    return st.sampled_from([name for argument, name in _ARGUMENTS.items() if argument in arguments])


def _scales(operation: Operation) -> Texts:
    values = st.sampled_from(("0.5", "2", "0.25", "1"))
    single = st.tuples(_arguments(operation), values).map(":common:".join)
    several = st.tuples(_arguments(operation), st.sampled_from(_MASKS)).map(":".join)
    typed = st.tuples(several, st.sampled_from(("f32", "bf16", "f16", "e8m0"))).map(":".join)
    groups = st.sampled_from(("2x1", "1x2", "4x1", "1x4", "3x1"))
    grouped = st.tuples(typed, groups).map(":".join)
    computed = st.sampled_from(("dst:mx:e8m0:1x32", "dst:dynamic_fp:f8_e4m3:1x16"))
    return st.one_of(single, several, typed, grouped, computed)


def _zero_points(operation: Operation) -> Texts:
    values = st.sampled_from(("1", "-2", "3"))
    single = st.tuples(_arguments(operation), values).map(":common:".join)
    several = st.tuples(_arguments(operation), st.sampled_from(_MASKS)).map(":".join)
    typed = st.tuples(several, st.sampled_from(("s32", "s8", "u8"))).map(":".join)
    return st.one_of(single, several, typed)


def _post_ops(operation: Operation) -> Texts:
    sums = st.sampled_from(("sum", "sum:0.5", "sum:2:1", "sum:1:0:s8"))
    masks = st.sampled_from(("common", "per_oc", "per_tensor", "per_dim_0", "1", "2", "3"))
    types = st.sampled_from(("f32", "f32", "bf16", "s8", "u8", "s32"))
    binary = st.tuples(st.sampled_from(_BINARY), types, masks).map(_binary)
    laid_out = st.tuples(binary, st.sampled_from(("abx", "axb", "aBx16b"))).map(_laid_out)
    prelu = st.sampled_from(("prelu", "prelu:per_oc", "prelu:per_tensor", "prelu:per_dim_0"))
    return st.one_of(st.sampled_from(_UNARY), sums, binary, laid_out, prelu)


def _binary(parts: tuple[str, str, str]) -> str:
    alg, data_type, mask = parts
    return f"{alg}:{data_type}{'.' if alg == 'select' else ':'}{mask}"


def _laid_out(parts: tuple[str, str]) -> str:
    entry, tag = parts
    return f"{entry}{'.' if entry.startswith('select') else ':'}{tag}"


def _dropout(_: Operation, ndims: int) -> Texts:
    chances, seeds = st.sampled_from(("0.5", "0", "1", "0.3")), st.sampled_from(("7", "12345"))
    tags = st.sampled_from(("any", "abx", "axb", "undef"))
    ends = st.sampled_from(("", ":0", ":5", ":0:true"))
    texts = st.tuples(chances, seeds, tags).map(":".join)
    return st.tuples(texts, ends).map("".join)


def _one_of(*texts: str) -> Callable[[Operation, int], Texts]:
    return lambda operation, ndims: st.sampled_from(texts)


ATTRIBUTES: Mapping[str, Callable[[Operation, int], Texts]] = {
    "attr-scales": _entries(_scales, 3),
    "attr-zero-points": _entries(_zero_points, 2),
    "attr-precomputed-reductions": _one_of(
        *(f"src:per_tensor:s32:1x{size}" for size in (1, 2, 3, 4, 16))
    ),
    "attr-post-ops": _entries(_post_ops, 4),
    "attr-scratchpad": _one_of("user"),
    "attr-fpmath": _one_of("bf16", "f16", "tf32", "any", "strict:true", "bf16:true"),
    "attr-acc-mode": _one_of("relaxed", "any", "f32", "s32", "f16"),
    "attr-deterministic": _one_of("true"),
    "attr-dropout": _dropout,
    "attr-rounding-mode": _one_of("dst:stochastic", "dst:stochastic:77"),
}
"""The strategy of each attribute, for an operation and the number of its dimensions."""
