"""A verbose line, ours or oneDNN's, as the arguments of the case that does the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dnnl.tools.bench.errors import BadValue
from dnnl.tools.bench.options import DRIVERS

_DIRECTIONS = {"forward_training": "FWD_D", "forward_inference": "FWD_I", "undef": ""}
_POOLING = {
    "pooling_max": "max",
    "pooling_avg_include_padding": "avg_p",
    "pooling_avg_exclude_padding": "avg_np",
}
_CONVOLUTION = {
    "convolution_direct": "DIRECT",
    "convolution_winograd": "WINO",
    "convolution_auto": "AUTO",
}
_AS_WRITTEN = ("scratchpad", "fpmath", "acc-mode", "deterministic", "rounding-mode", "post-ops")
_QUANTIZED = {"scales": "0.5", "zero-points": "1"}
"""A verbose line does not say the value of a single scale or zero point; this is taken for it."""
_FIELDS = 8


@dataclass(frozen=True)
class _Tensor:
    """One descriptor of a line: its name and type, its layout as a tag and as strides."""

    name: str
    data_type: str
    tag: str
    strides: str
    mask: str


@dataclass(frozen=True)
class _Line:
    """The fields of a line."""

    direction: str
    tensors: tuple[_Tensor, ...]
    aux: dict[str, str]

    def named(self, *names: str) -> list[_Tensor]:
        """The tensors of these names."""
        return [tensor for tensor in self.tensors if tensor.name in names]

    @property
    def sources(self) -> list[_Tensor]:
        """The sources; what is both source and destination is called data."""
        return self.named("src", "data")

    @property
    def target(self) -> _Tensor:
        """The destination."""
        return self.named("dst", "data")[-1]


Options = list[str]


def case_tokens(line: str) -> list[str]:
    """The arguments of ``dnnl bench`` for the primitive of a verbose line; raises BadValue."""
    words = line.strip().split(",")
    if "primitive" not in words[1:4] or not words[0].endswith("_verbose"):
        raise BadValue(f"{line!r} is no verbose line of a primitive")
    operation, *fields = words[words.index("primitive") + 1 :]
    if not re.match("exec$|create:.*(hit|miss)$", operation) or len(fields) < _FIELDS:
        raise BadValue(f"{line!r} does not say what was executed or created")
    engine, kind, _, prop, tensors, attributes, aux, problem = fields[:_FIELDS]
    if kind not in _KINDS or prop not in _DIRECTIONS:
        raise BadValue(f"a case of {kind}, {prop} cannot be made from a verbose line")
    parsed = _Line(
        _DIRECTIONS[prop],
        tuple(map(_tensor, tensors.split())),
        dict(item.split(":", 1) for item in aux.split() if ":" in item),
    )
    driver, options = _KINDS[kind]
    if "strides" not in _names(driver) and any(tensor.strides for tensor in parsed.tensors):
        raise BadValue(f"cases of --{driver} have no strides, and this line has some")
    chosen = [] if engine == "cpu" else [f"--engine={engine}"]
    return [*chosen, f"--{driver}", *options(parsed), *_attributes(attributes), problem]


def _names(driver: str) -> list[str]:
    return [option.name for option in DRIVERS[driver].options]


def _tensor(token: str) -> _Tensor:
    name, data_type, flags, _, tag, strides, *rest = (*token.split(":"), *[""] * 6)
    mask = re.search("_mask([0-9]+)", rest[0])
    open_tag = "any" if "a" in flags else tag
    return _Tensor(name, data_type, open_tag, strides, mask[1] if mask else "")


def _attributes(text: str) -> Options:
    options = []
    for part in text.split():
        name, _, value = part.removeprefix("attr-").partition(":")
        if name in _QUANTIZED:
            value = "+".join(_quantized(entry, _QUANTIZED[name]) for entry in value.split("+"))
        elif name not in _AS_WRITTEN:
            raise BadValue(f"the attribute {part!r} of a verbose line does not say enough")
        options.append(f"--attr-{name}={value}")
    return options


def _quantized(entry: str, single: str) -> str:
    name, mask, *rest = entry.split(":")
    return ":".join([name, mask, *([single] if mask == "0" else []), *rest])


def _dir(line: _Line) -> Options:
    direction = line.direction
    if direction == "FWD_D" and line.named("bia"):
        direction = "FWD_B"
    return [f"--dir={direction}"] if direction else []


def _types(option: str, tensors: Sequence[_Tensor]) -> str:
    return f"--{option}=" + ":".join(tensor.data_type for tensor in tensors)


def _dt(tensors: Sequence[_Tensor]) -> str:
    """The types of all tensors, or the one that they share."""
    return _types("dt", tensors[:1] if len({t.data_type for t in tensors}) == 1 else tensors)


def _layouts(tags: Sequence[str], tensors: Sequence[_Tensor]) -> Options:
    """Tags where the elements lie dense, else the strides of those that do not."""
    if not any(tensor.strides for tensor in tensors):
        return [f"--{tag}={tensor.tag}" for tag, tensor in zip(tags, tensors, strict=True)]
    strides = ":".join("" if tensor.tag == "any" else tensor.strides for tensor in tensors)
    return [f"--strides={strides}"] + [
        f"--{tag}={tensor.tag}"
        for tag, tensor in zip(tags, tensors, strict=True)
        if not tensor.strides
    ]


def _aux(line: _Line, *names: str) -> Options:
    return [f"--{name}={line.aux[name]}" for name in names if name in line.aux]


def _reorder(line: _Line) -> Options:
    ends = [line.sources[0], line.target]
    types = [_types("sdt", ends[:1]), _types("ddt", ends[1:])]
    return [*types, *_layouts(("stag", "dtag"), ends)]


def _softmax(line: _Line) -> Options:
    return [*_dir(line), *_reorder(line), *_aux(line, "alg", "axis")]


def _eltwise(line: _Line) -> Options:
    return [*_dir(line), *_one_type(line), *_aux(line, "alg", "alpha", "beta")]


def _one_type(line: _Line) -> Options:
    source = line.sources[0]
    return [f"--dt={source.data_type}", f"--tag={source.tag}"]


def _binary(line: _Line) -> Options:
    tensors = [*line.sources[:2], line.target]
    options = [_types("sdt", tensors[:2]), _types("ddt", tensors[2:])]
    if any(tensor.strides for tensor in tensors):
        strides = ":".join(tensor.strides for tensor in tensors)
        return [*options, f"--strides={strides}", *_aux(line, "alg")]
    tags = ":".join(tensor.tag for tensor in tensors[:2])
    return [*options, f"--stag={tags}", f"--dtag={line.target.tag}", *_aux(line, "alg")]


def _many(line: _Line) -> Options:
    tags = ":".join(tensor.tag for tensor in line.sources)
    return [f"--stag={tags}", _types("ddt", [line.target]), f"--dtag={line.target.tag}"]


def _sum(line: _Line) -> Options:
    return [_types("sdt", line.sources), *_many(line), *_aux(line, "scales")]


def _concat(line: _Line) -> Options:
    return [_types("sdt", line.sources[:1]), *_many(line), *_aux(line, "axis")]


def _batch_normalization(line: _Line) -> Options:
    return [*_dir(line), *_one_type(line), *_aux(line, "flags")]


def _pooling(line: _Line) -> Options:
    types = _dt([line.sources[0], line.target])
    alg = _POOLING.get(line.aux.get("alg", ""), "max")
    tag = f"--tag={line.sources[0].tag}"
    return [*_dir(line), types, tag, f"--alg={alg}"]


def _product(line: _Line) -> Options:
    tensors = [*line.sources[:1], *line.named("wei"), line.target]
    bias = line.named("bia")
    options = [_dt(tensors), *_layouts(("stag", "wtag", "dtag"), tensors)]
    return [*options, *([_types("bia-dt", bias)] if bias else [])]


def _convolution(line: _Line) -> Options:
    alg = _CONVOLUTION.get(line.aux.get("alg", ""), "DIRECT")
    return [*_dir(line), *_product(line), f"--alg={alg}"]


def _inner_product(line: _Line) -> Options:
    return [*_dir(line), *_product(line)]


def _matmul(line: _Line) -> Options:
    masks = [f"--bia_mask={bias.mask}" for bias in line.named("bia") if bias.mask]
    return [*_product(line), *masks]


_KINDS: dict[str, tuple[str, Callable[[_Line], Options]]] = {
    "reorder": ("reorder", _reorder),
    "softmax": ("softmax", _softmax),
    "eltwise": ("eltwise", _eltwise),
    "binary": ("binary", _binary),
    "sum": ("sum", _sum),
    "concat": ("concat", _concat),
    "batch_normalization": ("bnorm", _batch_normalization),
    "pooling": ("pool", _pooling),
    "convolution": ("conv", _convolution),
    "inner_product": ("ip", _inner_product),
    "matmul": ("matmul", _matmul),
}
"""The driver of each kind of primitive, and what makes its options."""
