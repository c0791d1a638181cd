"""The attributes of a verbose line in prose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dnnl.language.attributes import entries
from dnnl.language.errors import BadValue
from dnnl.tools.explain.phrases import BINARY, function

Letters = Mapping[str, Sequence[str]]
"""The letters of the dimensions of each tensor, by its name."""


def attributes(
    pairs: Sequence[tuple[str, str]], letters: Letters, *, scales_result: bool = False
) -> Iterator[str]:
    """A sentence for each attribute and each post-op; raises BadValue for what has no meaning.

    ``scales_result`` says that the scale of src multiplies what the operation computes.
    """
    for name, value in pairs:
        if name == "post-ops":
            yield from _post_ops(value, letters)
        elif name in ("scales", "zero-points"):
            for entry in entries(value):
                yield _quantized(entry, letters, scale=name == "scales", late=scales_result)
        elif name == "oscale":
            mask, _, single = value.partition(":")
            by = single or f"one scale {_along(mask, letters.get('dst', ()))}"
            yield f"the result is multiplied by {by}, before the post-ops"
        elif name in _MODES:
            yield _MODES[name](value)
        else:
            yield f"attr-{name}:{value}"


def _fpmath(value: str) -> str:
    mode, _, whole = value.partition(":")
    extra = ", integer weights as well" if whole in ("true", "1") else ""
    return f"f32 may be computed with the precision of {mode}{extra}"


def _dropout(value: str) -> str:
    """``TAG[:SEED_TYPE[:OFFSET[:HOST]]]``, the last two 0 or 1."""
    tag, seed, used, host = (*value.split(":"), "", "", "")[:4]
    mask = "" if tag == "undef" else f"; the mask, laid out {tag}, says which"
    given = ["the probability of it", f"a seed{f' of {seed}' if seed else ''}"]
    if used in ("1", "true"):
        given.append("an offset")
    where = " as scalars of the host" if host in ("1", "true") else ""
    text = f"{', '.join(given[:-1])} and {given[-1]}"
    return (
        f"dropout: elements of dst become zero at random, before the post-ops{mask}; an execution "
        f"gets {text}{where}"
    )


_MODES: dict[str, Callable[[str], str]] = {
    "scratchpad": lambda value: f"temporary memory is given by the {value}",
    "fpmath": _fpmath,
    "acc-mode": lambda value: f"accumulators may have the mode {value}",
    "deterministic": lambda value: "every execution must give the same bits",
    "rounding-mode": lambda value: f"rounding: {value}",
    "dropout": _dropout,
}


def _quantized(entry: str, letters: Letters, *, scale: bool, late: bool) -> str:
    """``ARG:MASK[:VALUE][:DT[:GROUPS]]``."""
    name, *rest = entry.split(":")
    if not rest or not rest[0].isdigit():
        raise BadValue(f"cannot read {entry!r} in an attribute: expected ARG:MASK:TYPE")
    mask, *rest = rest
    value = rest.pop(0) if rest and rest[0][:1] in "-.0123456789*" else ""
    kind = f"{rest[0]} " if rest else ""
    owner = {"src0": "src", "msrc0": "src"}.get(name, name)
    what = "scale" if scale else "zero point"
    dims = letters.get(owner, ())
    if mask == "0" and value not in ("", "*"):
        thing = f"the {what} {value}"
    elif mask == "0":
        thing = f"a single {kind}{what}"
    else:
        thing = f"one {kind}{what} {_along(mask, dims)}"
    if len(rest) > 1:
        thing += f" in groups of {rest[1]}"
    if scale and late and owner == "src":
        return f"the result is multiplied by {thing}, before the post-ops"
    if scale:
        return f"{owner} is {'divided' if owner == 'dst' else 'multiplied'} by {thing}"
    return f"{owner} has {thing}, {'added at the end' if owner == 'dst' else 'subtracted first'}"


def _along(mask: str, letters: Sequence[str]) -> str:
    """The dimensions of a mask: ``for each c``."""
    if not mask.isdigit():
        raise BadValue(f"{mask!r} is no mask of dimensions: expected a whole number")
    bits = int(mask)
    if not bits:
        return "of one value"
    places = [d for d in range(bits.bit_length()) if bits >> d & 1]
    if letters and places == list(range(len(letters))):
        return "for each element"
    names = [letters[d] if d < len(letters) else f"dimension {d}" for d in places]
    return f"for each {' and '.join(names)}"


def _post_ops(value: str, letters: Letters) -> Iterator[str]:
    for number, entry in enumerate(filter(None, entries(value))):
        yield f"post-op {number}: {_post_op(entry, letters.get('dst', ()))}"


def _post_op(entry: str, dims: Sequence[str]) -> str:
    """One entry of a chain; ``x`` is what it finds."""
    name, *rest = entry.split(":")
    if name == "sum":
        return _sum(rest)
    if name == "prelu":
        return f"x if x > 0, else x times a weight {_along((*rest, '0')[0], dims)}"
    if name.startswith("dw"):
        return f"a depthwise convolution, {':'.join([name, *rest])}"
    if name.startswith("eltwise_"):
        alpha, beta = (*rest, "0", "0")[:2]
        return f"{name.removeprefix('eltwise_')}: {function(name, alpha, beta)}"
    if name.startswith("binary_"):
        return _binary(name.removeprefix("binary_"), rest, dims)
    raise BadValue(f"{entry!r} is no post-op: expected sum, prelu, dw, eltwise_* or binary_*")


def _sum(rest: Sequence[str]) -> str:
    scale, zero_point, kind = (*rest, "", "", "")[:3]
    old = f"(dst - {zero_point})" if zero_point not in ("", "0") else "dst"
    factor = f"{scale} * " if scale not in ("", "1") else ""
    typed = f" read as {kind}" if kind else ""
    return f"sum: x + {factor}{old}, with dst as it was before{typed}"


def _binary(name: str, rest: Sequence[str], dims: Sequence[str]) -> str:
    kind, mask, tag = (*rest, "", "", "")[:3]
    if name not in BINARY or not kind:
        raise BadValue(
            f"'binary_{':'.join([name, *rest])}' is no post-op: expected binary_ALG:TYPE"
        )
    text = BINARY[name].format(x="x", y="y")
    one = mask in ("", "0")
    operand = f"one {kind} value" if one else f"{kind} values, one {_along(mask, dims)}"
    layout = f", laid out {tag}" if tag and tag != "any" and not one else ""
    return f"{name}: {text}, where y is {operand}{layout}"
