"""The options of a driver, as data: one row for each, in the order of the loops.

A problem runs for every combination of the values in its driver's lists; the first option of a
driver varies slowest. A row also says how its value is read out of a verbose line, so that every
line becomes the case that does the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dnnl.language import attributes as attr
from dnnl.language.descriptor import Descriptor, Grammar
from dnnl.language.errors import BadValue
from dnnl.language.problem import Dims, Shapes
from dnnl.language.tags import tag
from dnnl.language.values import (
    Lacking,
    Named,
    Parser,
    Text,
    any_case,
    data_type,
    direction,
    flag,
    integer,
    letters,
    matching,
    one_of,
    open_dims,
    positive,
    several,
    text,
)
from dnnl.language.verbose import OperationLine, Tensor
from dnnl.types.kinds import Alg

Problem = Shapes | Descriptor
FromLine = Callable[[OperationLine], str | None]
"""The value of an option in a verbose line; None where the line does not say it."""
Selector = Callable[[OperationLine], Sequence[Tensor]]


def _absent(_: OperationLine) -> None:
    return None


@dataclass(frozen=True)
class Option:
    """One option: its name without dashes, what it is at first, how an item of it is read, and
    where a verbose line tells it.

    ``always`` shows it in repro lines even if it has its default; ``layout`` says that it is about
    types and layouts of tensors rather than about what is computed. ``names`` are the values of an
    option that has few. An empty value means the default.
    """

    name: str
    default: str
    parse: Parser
    from_line: FromLine = _absent
    always: bool = False
    layout: bool = False
    names: tuple[str, ...] = ()

    def but(self, default: str) -> Option:
        """This option with another default."""
        return replace(self, default=default)

    def shown(self) -> Option:
        """This option, shown in every repro line."""
        return replace(self, always=True)


@dataclass(frozen=True)
class Driver:
    """What one driver reads: its options in the order of the loops, and its problems.

    ``replayable`` says whether a verbose line determines a case, ``matched`` whether the
    option ``match`` looks at its cases.
    """

    name: str
    options: tuple[Option, ...]
    problem: Dims | Grammar
    replayable: bool = True
    matched: bool = True
    order: tuple[int, ...] = field(init=False, repr=False)
    """The places of the options in the order in which repro lines have them."""

    def __post_init__(self) -> None:
        names = [option.name for option in self.options]
        order = sorted(range(len(names)), key=lambda place: _shown_rank(names, place))
        object.__setattr__(self, "order", tuple(order))

    def find(self, name: str) -> Option | None:
        """The option of that name."""
        return next((option for option in self.options if option.name == name), None)

    @property
    def propagation(self) -> Option | None:
        """The option that says what is propagated, which recurrent networks call ``prop``."""
        return self.find("dir") or self.find("prop")


def _shown_rank(names: list[str], place: int) -> float:
    """In-place comes before the attributes, which end with rounding, determinism and dropout."""
    name = names[place]
    late = ("attr-rounding-mode", "attr-deterministic", "attr-dropout")
    first = names.index("attr-scales") if "attr-scales" in names else len(names)
    if name == "inplace":
        return first - 0.5
    if name in late:
        return names.index("attr-rounding-mode") + late.index(name) / 4
    return place


def source(line: OperationLine) -> Sequence[Tensor]:
    """The first source."""
    return [line.source]


def sources(line: OperationLine) -> Sequence[Tensor]:
    """All sources."""
    return line.sources


def target(line: OperationLine) -> Sequence[Tensor]:
    """The destination."""
    return [line.target]


def ends(line: OperationLine) -> Sequence[Tensor]:
    """The first source and the destination."""
    return [line.source, line.target]


def weights(line: OperationLine) -> Sequence[Tensor]:
    """The weights, which old products call their second source."""
    found = line.named("wei", "diff_wei") or line.sources[1:]
    if not found:
        raise BadValue("the line names no wei among its tensors")
    return found[:1]


def pair(line: OperationLine) -> Sequence[Tensor]:
    """The first two sources."""
    return line.sources[:2]


def pair_and_target(line: OperationLine) -> Sequence[Tensor]:
    """Two sources and the destination."""
    return [*pair(line), line.target]


def operands(line: OperationLine) -> Sequence[Tensor]:
    """Source, weights and destination of a product."""
    return [line.source, *weights(line), line.target]


def types(
    name: str, default: str, of: Selector, counts: Iterable[int] = (1,), *, joined: bool = False
) -> Option:
    """The types of the tensors ``of`` a line, as many as ``counts`` allows.

    ``joined`` writes the one that all share once.
    """

    def from_line(line: OperationLine) -> str:
        kinds = [tensor.data_type for tensor in of(line)]
        return kinds[0] if joined and len(set(kinds)) == 1 else ":".join(kinds)

    allowed = tuple(counts)
    parse = data_type if allowed == (1,) else several(data_type, allowed)
    return Option(name, default, parse, from_line, layout=True)


def open_tag(tensor: Tensor) -> str:
    """The tag; ``any`` where the library chose it or the memory has more than elements."""
    return "any" if "a" in tensor.letters or tensor.compensated else tensor.tag


def given_tag(tensor: Tensor) -> str:
    """The tag of a tensor whose layout is never left open."""
    return tensor.tag


def tags(
    name: str,
    default: str,
    of: Selector,
    parse: Parser = tag,
    spelled: Callable[[Tensor], str] = open_tag,
) -> Option:
    """The layouts of the tensors ``of`` a line, where all of them are dense."""

    def from_line(line: OperationLine) -> str | None:
        tensors = of(line)
        if any(tensor.strides or tensor.encoded for tensor in tensors):
            return None
        return ":".join(map(spelled, tensors))

    return Option(name, default, parse, from_line, layout=True)


def strides(of: Selector, count: int, spelled: Callable[[Tensor], str] = open_tag) -> Option:
    """The strides of ``count`` tensors, empty for dense ones."""

    def parse(value: str) -> Text:
        if value and value.count(":") != count - 1:
            raise ValueError(f"expected {count} parts with colons between them")
        if not re.fullmatch("([0-9]+(x[0-9]+)*|:)*", value):
            raise ValueError("expected numbers with an x between them")
        return Text(value)

    def from_line(line: OperationLine) -> str | None:
        tensors = of(line)
        if not any(tensor.strides for tensor in tensors):
            return None
        return ":".join("" if spelled(tensor) == "any" else tensor.strides for tensor in tensors)

    return Option("strides", "", parse, from_line, layout=True)


def auxiliary(name: str, default: str, parse: Parser, names: Iterable[str] = ()) -> Option:
    """A parameter that verbose lines call by the option's own name; ``names`` are its values, where
    they are few."""
    return Option(name, default, parse, lambda line: line.aux.get(name), names=tuple(names))


def algorithm(default: str, names: dict[str, str], lacking: Iterable[str] = ()) -> Option:
    """The algorithm: ``names`` has what verbose lines say for each name in cases. Either is read,
    in any case, and means the short one; ``lacking`` are those that only oneDNN has."""
    known = {verbose: name for name, verbose in reversed(names.items())}

    def from_line(line: OperationLine) -> str | None:
        alg = line.aux.get("alg")
        if alg is not None and alg not in known:
            listed = ", ".join(known)
            raise BadValue(f"no case can be made of the algorithm {alg!r}; known: {listed}")
        return None if alg is None else known[alg]

    short = {verbose: name for name, verbose in reversed(names.items()) if verbose not in names}
    parse = any_case(*names, *short)

    def read(value: str) -> Named:
        if value.lower() in lacking:
            raise Lacking(f"there is no algorithm {value}")
        spelled: str = parse(value)
        name = short.get(spelled, spelled)
        return Named.of(name, names[name])

    return Option("alg", default, read, from_line, names=tuple(names))


def function(default: str, known: Mapping[str, Alg]) -> Option:
    """An elementary function by its short or its long name, which mean the short one."""
    parse = any_case(*known)

    def read(value: str) -> Named:
        alg = known[parse(value)]
        return Named.of(attr.short_name(alg), alg.name)

    return auxiliary("alg", default, read, known)


def flags(known: str) -> Option:
    """The flags of a normalization; version 2 had one flag for scale and shift."""

    def from_line(line: OperationLine) -> str | None:
        return line.aux.get("flags", "").replace("S", "CH") or None

    return Option("flags", "", letters(known), from_line)


class AppendedSums(Text):
    """The sums behind weights as ``s8s8_comp:MASK+zp_comp:MASK``."""

    @property
    def masks(self) -> dict[str, int]:
        """The mask of each kind of sums."""
        entries = [entry.split(":") for entry in self.split("+") if entry]
        return {_SUMS[name]: int(mask) for name, mask in entries}


_SUMS = {"s8s8_comp": "s8s8", "zp_comp": "zero_points"}
_SUM_MASKS = {"s8s8_comp": "s8m", "zp_comp": "zpm"}


def appended_sums(name: str) -> Option:
    """What a reorder writes behind weights."""
    form = "s8s8_comp:MASK, zp_comp:MASK or both with a + between them"
    check = matching(r"((s8s8|zp)_comp:[0-9]+(\+(?!$)|$))*", form)

    def from_line(line: OperationLine) -> str | None:
        if line.source.compensated:
            raise BadValue("no case can be made of a reorder from weights with compensation")
        if ":sa" in line.target.extra:
            raise BadValue("no case can be made of weights with an adjusted scale")
        masks = line.target.compensated
        given = {name: masks[key] for name, key in _SUM_MASKS.items() if key in masks}
        return "+".join(f"{name}:{mask}" for name, mask in given.items()) or None

    return Option(name, "", lambda value: AppendedSums(check(value)), from_line)


_DIRECTIONS = {
    "undef": "", "forward_training": "FWD_D", "forward_inference": "FWD_I",
    "backward_data": "BWD_D", "backward_weights": "BWD_W", "backward": "BWD_DW",
}  # fmt: skip
_WITH_BIAS = {"FWD_D": "FWD_B", "BWD_W": "BWD_WB"}
PROPAGATIONS = tuple(_DIRECTIONS)
"""The propagation kinds of which cases can be made."""


def _direction(line: OperationLine) -> str | None:
    found = _DIRECTIONS.get(line.prop, "")
    if line.named("bia", "diff_bia"):
        found = _WITH_BIAS.get(found, found)
    return found or None


def _bias_type(line: OperationLine) -> str | None:
    return next((tensor.data_type for tensor in line.named("bia", "diff_bia")), None)


def _bias_mask(line: OperationLine) -> str | None:
    return next((tensor.mask for tensor in line.named("bia") if tensor.mask), None)


def _threads(value: str) -> Text:
    if value:
        several(integer, range(1, 4))(value)
    return Text(value)


def _tags_of_ends(line: OperationLine) -> str | None:
    """The layout of src, and that of dst where it is given and another one."""
    if any(tensor.strides for tensor in ends(line)):
        return None
    src, dst = map(open_tag, ends(line))
    return src if dst in ("any", src) else f"{src}:{dst}"


ATTRIBUTES = (
    Option("attr-scales", "", attr.scales),
    Option("attr-zero-points", "", attr.zero_points),
    Option("attr-precomputed-reductions", "", attr.reductions),
    Option("attr-post-ops", "", attr.post_ops),
    Option("attr-scratchpad", "library", one_of("library", "user")),
    Option("attr-fpmath", "strict", attr.fpmath),
    Option("attr-acc-mode", "strict", one_of("strict", "relaxed", "any", "f32", "s32", "f16")),
    Option("attr-deterministic", "false", flag),
    Option("attr-dropout", "", attr.dropout),
    Option("attr-rounding-mode", "dst:environment", attr.rounding_modes),
    Option("ctx-init", "", _threads),
    Option("ctx-exe", "", _threads),
    Option("open", "none", open_dims),
    Option("sizes", "1", positive),
)

DIR = Option("dir", "FWD_D", direction, _direction)
PROP = Option("prop", "FWD_I", direction, _direction)
SDT = types("sdt", "f32", source)
DDT = types("ddt", "f32", target)
DT = types("dt", "f32", ends, (1, 2), joined=True)
STAG = tags("stag", "abx", source)
WTAG = tags("wtag", "any", weights)
DTAG = tags("dtag", "any", target)
TAG = Option("tag", "abx", several(tag, (1, 2)), _tags_of_ends, layout=True)
MB = Option("mb", "0", integer)
INPLACE = Option("inplace", "false", flag)
AXIS = auxiliary("axis", "1", integer)
BIA_DT = Option("bia-dt", "undef", data_type, _bias_type)
BIA_MASK = Option("bia_mask", "2", integer, _bias_mask)
PRODUCT_DT = types("dt", "f32", operands, (1, 3), joined=True)
EACH_STAG = tags("stag", "abx", sources, several(text))
PAIR_STAG = tags("stag", "abx:any", pair, several(text, (2,)))
