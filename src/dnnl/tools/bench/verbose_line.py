"""A verbose line, ours or oneDNN's, as the arguments of the case that does the same."""

from __future__ import annotations

from dataclasses import replace

from dnnl.language.attributes import entries
from dnnl.language.errors import BadValue
from dnnl.language.options import PROPAGATIONS, Driver
from dnnl.language.verbose import OperationLine, OtherLine, read_line
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.drivers import KINDS

_AS_WRITTEN = ("scratchpad", "fpmath", "acc-mode", "deterministic", "rounding-mode", "post-ops")
_OF_OPTIONS = ("rnn_data_qparams", "rnn-weights-qparams", "rnn-projection-qparams")
"""What options of a driver say."""
_QUANTIZED = {"scales": "0.5", "zero-points": "1"}
"""A verbose line does not say the value of a single scale or zero point; this is taken for it."""

_TRUE = ("1", "true")
_PROBABILITY, _SEED, _OFFSET = "0.5", "12345", "1"
"""Nor does it give the parameters of a dropout."""

Options = list[str]


def case_tokens(line: str) -> list[str]:
    """The arguments of ``dnnl bench`` for the operation of a verbose line; raises BadValue."""
    parsed = read(line)
    if not isinstance(parsed, OperationLine):
        raise BadValue(f"a line of {parsed.topic!r} does not say what was executed or created")
    return operation_tokens(parsed)


def read(text: str) -> OperationLine | OtherLine:
    """Read a line, with the names of today for what version 2 called otherwise; raises BadValue."""
    line = read_line(text)
    if isinstance(line, OtherLine):
        return line
    for kind, description in OPERATIONS.items():
        former = description.operation.formerly
        if line.kind in former:
            alg = line.aux.get("alg", line.kind)
            alg = former.get(alg, alg)
            return replace(line, kind=kind, aux={**line.aux, "alg": alg} if alg else line.aux)
    return line


def operation_tokens(line: OperationLine) -> list[str]:
    """The arguments of ``dnnl bench`` for a line that was read before; raises BadValue."""
    driver = KINDS.get(line.kind)
    if driver is None or not driver.replayable:
        raise BadValue(f"no case can be made of the kind {line.kind!r}")
    if line.prop not in PROPAGATIONS:
        raise BadValue(f"no case can be made of the propagation {line.prop!r}")
    _check_layouts(line, driver)
    chosen = [] if line.engine == "cpu" else [f"--engine={line.engine}"]
    try:
        values = [(option.name, option.from_line(line)) for option in driver.options]
    except ValueError as error:
        raise BadValue(f"no case can be made of {line.problem!r}: {error}") from error
    options = [f"--{name}={value}" for name, value in values if value is not None]
    problem = driver.problem.from_line(line.problem)
    return [*chosen, f"--{driver.name}", *options, *_attributes(line), problem]


def _check_layouts(line: OperationLine, driver: Driver) -> None:
    """Raise for layouts that no case has."""
    gaps = driver.find("trivial-strides")
    has_strides = driver.find("strides") or (gaps and gaps.from_line(line) == "false")
    if not has_strides and any(tensor.strides for tensor in line.tensors):
        raise BadValue(f"cases of --{driver.name} have no strides, and this line has some")
    for tensor in line.tensors:
        if tensor.tag == "*":
            hint = "the line of an execution has its sizes"
            raise BadValue(f"no case can be made of a layout that is not known (*): {hint}")
        if tensor.strides and any(letter.isdigit() for letter in tensor.tag):
            raise BadValue(f"no case can be made of {tensor.tag} with gaps ({tensor.strides})")


def _attributes(line: OperationLine) -> Options:
    options = []
    for name, value in line.attributes:
        if name == "oscale":
            options.append(f"--attr-scales={_output_scale(line, value)}")
        elif name in _QUANTIZED:
            read = (_quantized(entry, _QUANTIZED[name]) for entry in entries(value))
            options.append(f"--attr-{name}={'+'.join(read)}")
        elif name == "dropout":
            options.append(f"--attr-dropout={_dropout(value)}")
        elif name in _OF_OPTIONS:
            continue
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


def _dropout(value: str) -> str:
    """``TAG[:SEED_TYPE[:OFFSET[:HOST]]]``, the last two 0 or 1."""
    tag, _, used, host = (*value.split(":"), "", "", "")[:4]
    offset = _OFFSET if used in _TRUE else "0"
    return ":".join([_PROBABILITY, _SEED, tag, offset, "true" if host in _TRUE else "false"])


def _output_scale(line: OperationLine, value: str) -> str:
    """The scale that version 2 had for the result, as one of a source.

    It multiplied what the operation computes, before the post-ops, along a mask of dst.
    """
    mask, _, single = value.partition(":")
    if mask == "0":
        return f"src:0:{single or _QUANTIZED['scales']}"
    if not line.named("wei"):
        return f"src:{mask}"
    if mask == "2":
        return "wei:per_oc"
    raise BadValue(f"no case can be made of the attribute 'attr-oscale:{value}'")
