"""A verbose line, ours or oneDNN's, as the arguments of the case that does the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dnnl.tools.bench.attributes import entries
from dnnl.tools.bench.errors import BadValue
from dnnl.tools.bench.options import DRIVERS
from dnnl.tools.bench.verbose_syntax import OperationLine, Tensor, read_line

_DIRECTIONS = {
    "undef": "", "forward_training": "FWD_D", "forward_inference": "FWD_I",
    "backward_data": "BWD_D", "backward_weights": "BWD_W", "backward": "BWD_DW",
}  # fmt: skip
_WITH_BIAS = {"FWD_D": "FWD_B", "BWD_W": "BWD_WB"}
_POOLING = {
    "pooling_max": "max",
    "pooling_avg_include_padding": "avg_p",
    "pooling_avg_exclude_padding": "avg_np",
}
_PRODUCTS = {"direct": "DIRECT", "winograd": "WINO", "auto": "AUTO"}
_LRN = {"lrn_across_channels": "ACROSS", "lrn_within_channel": "WITHIN"}
_OFLAGS = {"s8s8_comp": "s8m", "zp_comp": "zpm"}
_AS_WRITTEN = ("scratchpad", "fpmath", "acc-mode", "deterministic", "rounding-mode", "post-ops")
_QUANTIZED = {"scales": "0.5", "zero-points": "1"}
"""A verbose line does not say the value of a single scale or zero point; this is taken for it."""

Options = list[str]


def case_tokens(line: str) -> list[str]:
    """The arguments of ``dnnl bench`` for the operation of a verbose line; raises BadValue."""
    parsed = read_line(line)
    if not isinstance(parsed, OperationLine):
        raise BadValue(f"a line of {parsed.topic!r} does not say what was executed or created")
    return operation_tokens(parsed)


def operation_tokens(line: OperationLine) -> list[str]:
    """The same of a line that was read before."""
    if line.kind not in _KINDS:
        raise BadValue(f"no case can be made of the kind {line.kind!r}")
    if line.prop not in _DIRECTIONS:
        raise BadValue(f"no case can be made of the propagation {line.prop!r}")
    driver, options = _KINDS[line.kind]
    if "strides" not in _names(driver) and any(tensor.strides for tensor in line.tensors):
        raise BadValue(f"cases of --{driver} have no strides, and this line has some")
    for tensor in line.tensors:
        if tensor.tag == "*":
            hint = "the line of an execution has its sizes"
            raise BadValue(f"no case can be made of a layout that is not known (*): {hint}")
        if tensor.strides and any(letter.isdigit() for letter in tensor.tag):
            raise BadValue(f"no case can be made of {tensor.tag} with gaps ({tensor.strides})")
    chosen = [] if line.engine == "cpu" else [f"--engine={line.engine}"]
    return [*chosen, f"--{driver}", *options(line), *_attributes(line), problem_of(line)]


def _names(driver: str) -> list[str]:
    return [option.name for option in DRIVERS[driver].options]


def driver_of(kind: str) -> str | None:
    """The driver of ``dnnl bench`` for a kind of primitive; None if there is none."""
    return _KINDS[kind][0] if kind in _KINDS else kind if kind in DRIVERS else None


def problem_of(line: OperationLine) -> str:
    """The problem; version 2 gave a product the sizes of its result as well."""
    return ":".join(line.problem.split(":")[:2]) if line.kind == "matmul" else line.problem


def _attributes(line: OperationLine) -> Options:
    options = []
    for name, value in line.attributes:
        if name == "oscale":
            options.append(f"--attr-scales={_output_scale(line, value)}")
        elif name in _QUANTIZED:
            read = (_quantized(entry, _QUANTIZED[name]) for entry in entries(value))
            options.append(f"--attr-{name}={'+'.join(read)}")
        elif name in _AS_WRITTEN:
            options.append(f"--attr-{name}={value}")
        else:
            raise BadValue(f"no case can be made of the attribute 'attr-{name}:{value}'")
    return options


def _quantized(entry: str, single: str) -> str:
    """``ARG:MASK[:DT[:GROUPS]]``, or as in version 2 ``ARG:MASK[:VALUE]``."""
    name, *parts = entry.split(":")
    if not parts:
        raise BadValue(f"cannot read {entry!r} in an attribute: expected ARG:MASK:TYPE")
    mask, *rest = parts
    if mask != "0":
        return entry
    given = bool(rest) and rest[0][:1] in "-.0123456789"
    return ":".join([name, mask, *([] if given else [single]), *rest])


def _output_scale(line: OperationLine, value: str) -> str:
    """The scale that version 2 had for the result, as one of a source.

    It multiplied what the operation computes, before the post-ops, along a mask of dst.
    """
    mask, _, single = value.partition(":")
    if mask == "0":
        return f"src:0:{single or _QUANTIZED['scales']}"
    if line.kind == "reorder":
        return f"src:{mask}"
    if mask == "2":
        return "wei:per_oc"
    raise BadValue(f"no case can be made of the attribute 'attr-oscale:{value}'")


def _open_tag(tensor: Tensor) -> str:
    """The tag, any where the library chose it or where more than elements lies in memory."""
    return "any" if "a" in tensor.letters or tensor.compensated else tensor.tag


def _dir(line: OperationLine) -> Options:
    direction = _DIRECTIONS[line.prop]
    if line.named("bia", "diff_bia"):
        direction = _WITH_BIAS.get(direction, direction)
    return [f"--dir={direction}"] if direction else []


def _types(option: str, tensors: Sequence[Tensor]) -> str:
    return f"--{option}=" + ":".join(tensor.data_type for tensor in tensors)


def _dt(tensors: Sequence[Tensor]) -> str:
    """The types of all tensors, or the one that they share."""
    return _types("dt", tensors[:1] if len({t.data_type for t in tensors}) == 1 else tensors)


def _layouts(tags: Sequence[str], tensors: Sequence[Tensor]) -> Options:
    """Tags where the elements lie dense, else the strides of those that do not."""
    given = list(zip(tags, map(_open_tag, tensors), tensors, strict=True))
    if not any(tensor.strides for tensor in tensors):
        return [f"--{option}={tag}" for option, tag, _ in given]
    strides = ":".join("" if tag == "any" else tensor.strides for _, tag, tensor in given)
    dense = [f"--{option}={tag}" for option, tag, tensor in given if not tensor.strides]
    return [f"--strides={strides}", *dense]


def _tags(option: str, tensors: Sequence[Tensor]) -> str:
    return f"--{option}=" + ":".join(map(_open_tag, tensors))


def _aux(line: OperationLine, *names: str) -> Options:
    return [f"--{name}={line.aux[name]}" for name in names if name in line.aux]


def _alg(line: OperationLine, names: dict[str, str]) -> Options:
    """The algorithm, renamed; the one that a driver takes by itself where the line names none."""
    alg = line.aux.get("alg")
    if alg is None:
        return []
    if alg not in names:
        raise BadValue(f"no case can be made of the algorithm {alg!r}; known: {', '.join(names)}")
    return [f"--alg={names[alg]}"]


def _reorder(line: OperationLine) -> Options:
    masks = line.target.compensated
    if line.source.compensated:
        raise BadValue("no case can be made of a reorder from weights with compensation")
    if ":sa" in line.target.extra:
        raise BadValue("no case can be made of weights with an adjusted scale")
    flags = [f"{name}:{masks[key]}" for name, key in _OFLAGS.items() if key in masks]
    # Without "any" for the layout, which compensation means elsewhere.
    ends = [line.source, replace(line.target, extra="f0")]
    options = [*_end_types(line), *_layouts(("stag", "dtag"), ends)]
    return [*options, f"--oflag={'+'.join(flags)}"] if flags else options


def _end_types(line: OperationLine) -> Options:
    return [_types("sdt", [line.source]), _types("ddt", [line.target])]


def _ends(line: OperationLine) -> Options:
    return [*_end_types(line), *_layouts(("stag", "dtag"), [line.source, line.target])]


def _softmax(line: OperationLine) -> Options:
    return [*_dir(line), *_ends(line), *_aux(line, "alg", "axis")]


def _eltwise(line: OperationLine) -> Options:
    return [*_dir(line), *_one_type(line), *_aux(line, "alg", "alpha", "beta")]


def _one_type(line: OperationLine) -> Options:
    return [_types("dt", [line.source]), _tags("tag", [line.source])]


def _binary(line: OperationLine) -> Options:
    tensors = [*line.sources[:2], line.target]
    options = [_types("sdt", tensors[:2]), _types("ddt", tensors[2:])]
    if any(tensor.strides for tensor in tensors):
        strides = ":".join(tensor.strides for tensor in tensors)
        return [*options, f"--strides={strides}", *_aux(line, "alg")]
    return [
        *options, _tags("stag", tensors[:2]), _tags("dtag", tensors[2:]), *_aux(line, "alg")
    ]  # fmt: skip


def _many(line: OperationLine) -> Options:
    return [
        _tags("stag", line.sources), _types("ddt", [line.target]), _tags("dtag", [line.target])
    ]  # fmt: skip


def _sum(line: OperationLine) -> Options:
    return [_types("sdt", line.sources), *_many(line), *_aux(line, "scales")]


def _concat(line: OperationLine) -> Options:
    return [_types("sdt", line.sources[:1]), *_many(line), *_aux(line, "axis")]


def _flags(line: OperationLine) -> Options:
    """Flags of a normalization; version 2 had one for scale and shift together."""
    flags = line.aux.get("flags", "").replace("S", "CH")
    return [f"--flags={flags}"] if flags else []


def _batch_normalization(line: OperationLine) -> Options:
    return [*_dir(line), *_one_type(line), *_flags(line)]


def _normalization(line: OperationLine) -> Options:
    """Layer and group normalization, whose two tensors have types and layouts of their own."""
    ends = [line.source, line.target]
    return [*_dir(line), _types("dt", ends), _tags("tag", ends), *_flags(line)]


def _layer_normalization(line: OperationLine) -> Options:
    stats = [f"--stat_tag={_open_tag(tensor)}" for tensor in line.named("stats", "stat")]
    return [*_normalization(line), *stats]


def _lrn(line: OperationLine) -> Options:
    return [*_dir(line), *_one_type(line), *_alg(line, _LRN)]


def _shuffle(line: OperationLine) -> Options:
    return [*_dir(line), *_one_type(line), *_aux(line, "axis", "group")]


def _prelu(line: OperationLine) -> Options:
    tensors = [line.source, *line.named("wei")]
    return [*_dir(line), _types("sdt", tensors), _tags("stag", tensors)]


def _resampling(line: OperationLine) -> Options:
    names = {"resampling_nearest": "nearest", "resampling_linear": "linear"}
    tag = _tags("tag", [line.source])
    return [*_dir(line), *_end_types(line), tag, *_alg(line, names)]


def _reduction(line: OperationLine) -> Options:
    alg = line.aux.get("alg", "").removeprefix("reduction_")
    return [*_ends(line), *([f"--alg={alg}"] if alg else []), *_aux(line, "p", "eps")]


def _pooling(line: OperationLine) -> Options:
    types = _dt([line.source, line.target])
    return [*_dir(line), types, _tags("tag", [line.source]), *_alg(line, _POOLING)]


def _product(line: OperationLine) -> Options:
    weights = line.named("wei", "diff_wei") or line.sources[1:]
    if not weights:
        raise BadValue("the line names no wei among its tensors")
    tensors = [line.source, weights[0], line.target]
    bias = line.named("bia", "diff_bia")
    options = [_dt(tensors), *_layouts(("stag", "wtag", "dtag"), tensors)]
    return [*options, *([_types("bia-dt", bias)] if bias else [])]


def _convolution(line: OperationLine) -> Options:
    names = {f"{line.kind}_{name}": alg for name, alg in _PRODUCTS.items()}
    return [*_dir(line), *_product(line), *_alg(line, names)]


def _inner_product(line: OperationLine) -> Options:
    return [*_dir(line), *_product(line)]


def _matmul(line: OperationLine) -> Options:
    masks = [f"--bia_mask={bias.mask}" for bias in line.named("bia") if bias.mask]
    runtime = _aux(line, "runtime_dims_masks")
    return [*_product(line), *masks, *runtime]


_KINDS: dict[str, tuple[str, Callable[[OperationLine], Options]]] = {
    "reorder": ("reorder", _reorder),
    "softmax": ("softmax", _softmax),
    "eltwise": ("eltwise", _eltwise),
    "binary": ("binary", _binary),
    "sum": ("sum", _sum),
    "concat": ("concat", _concat),
    "batch_normalization": ("bnorm", _batch_normalization),
    "layer_normalization": ("lnorm", _layer_normalization),
    "group_normalization": ("gnorm", _normalization),
    "lrn": ("lrn", _lrn),
    "shuffle": ("shuffle", _shuffle),
    "prelu": ("prelu", _prelu),
    "resampling": ("resampling", _resampling),
    "reduction": ("reduction", _reduction),
    "pooling": ("pool", _pooling),
    "convolution": ("conv", _convolution),
    "deconvolution": ("deconv", _convolution),
    "inner_product": ("ip", _inner_product),
    "matmul": ("matmul", _matmul),
}
"""The driver of each kind of primitive, and what makes its options."""
