"""Strategies for cases of ``dnnl bench``: every registered operation, by what its record says.

Options are drawn by their names and told apart from what an operation takes by its own parsers, so
that a new operation made of known options needs nothing here. All values are simple first, as that
is the direction in which failures shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from dnnl.errors import Error
from dnnl.language.errors import BadValue
from dnnl.language.options import Driver, Option
from dnnl.language.values import TYPES
from dnnl.primitives.operation import Operation
from dnnl.primitives.registry import OPERATIONS
from dnnl.primitives.rnn_language import CELLS
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.types.arg import Arg
from dnnl.types.cell_functions import GATE_LETTERS
from dnnl.types.kinds import Alg
from tests.fuzz.problem_attributes import ATTRIBUTES
from tests.fuzz.problem_growth import grown
from tests.fuzz.problem_sizes import Dims, Draw, begun

_TYPES = (
    *("f32",) * 6, "bf16", "f16", "f64", "s8", "u8", "s32", "bf16", "f16", "s8", "u8",
    "f8_e5m2", "f8_e4m3", "s4", "u4",
)  # fmt: skip
_PRODUCTS = (
    "s8:s8:s32", "u8:s8:f32", "u8:s8:u8", "s8:s8:s8", "bf16:bf16:f32", "f16:f16:f32", "f32:s8:f32",
    "f32:s4:f32", "f16:u4:f16", "bf16:s8:bf16", "u8:u8:s32", "f32:f32:bf16", "f32:f32:s8",
)  # fmt: skip
_LEFT_ALONE = {
    # The batch is part of the problem, and the fuzzer has threads of its own.
    "mb", "l", "t", "ctx-init", "ctx-exe",
    # Refused wherever it is not what it is by default.
    "cross-engine", "skip-nonlinear",
    # Parts of the problem.
    "encoding", "grouped",
    # Drawn for whole cases (`tests.fuzz.open_cases`).
    "open", "sizes",
}  # fmt: skip


class Sketch:
    """A case while it is drawn: options so far, and what the tensors of such a case are."""

    def __init__(
        self, operation: Operation, problem: str, options: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.operation, self.problem = operation, problem
        self.options = dict(options)

    @property
    def driver(self) -> Driver:
        """The driver of the operation."""
        return self.operation.driver

    @property
    def case(self) -> Case:
        """The case as it is so far; gives up where it is none."""
        options = [f"--{name}={value}" for name, value in self.options.items()]
        try:
            (case,) = Interpreter().cases([f"--{self.driver.name}", *options, self.problem])
        except BadValue:
            reject()
        return case

    def dims(self, argument: int) -> Dims:
        """The dims of a tensor; those of the first one where there is no such."""
        roles = [role for role in self.operation.roles if role.field]
        for role in [role for role in roles if role.argument == argument] + roles[:1]:
            try:
                desc = role.case(self.case)
            except (BadValue, Error):
                reject()
            if desc is not None and desc != ():
                return tuple((desc[0] if role.many else desc).dims)
        return ()

    @property
    def sources(self) -> int:
        """How many sources there are where there may be many."""
        shapes = self.problem.count(":") + 1
        return max(shapes, str(self.options.get("sdt", "")).count(":") + 1)


@st.composite
def cases(draw: Draw, kinds: Sequence[str] = tuple(OPERATIONS), *, large: bool = False) -> Case:
    """A case of an operation of one of these kinds; a ``large`` one has sizes as in networks."""
    operation = OPERATIONS[draw(st.sampled_from(kinds))].operation
    problem, options = draw(begun(operation.driver))
    if large and not options.keys() & _LEFT_ALONE:
        problem = draw(grown(operation.driver, problem))
    sketch = Sketch(operation, problem, options)
    for option in operation.driver.options:
        if option.name in _LEFT_ALONE or option.name in sketch.options:
            continue
        if draw(_changed(option)):
            value = _VALUES[option.name](draw, option, sketch)
            if value is not None:
                sketch.options[option.name] = value
    return sketch.case


def _changed(option: Option) -> st.SearchStrategy[bool]:
    """Whether an option gets another value than its own: attributes seldom do, as most operations
    refuse most of them."""
    if option.name == "axis":  # its default is not there in one dimension
        return st.just(True)
    if option.name in (
        "attr-post-ops",
        "attr-scales",
        "strides",
        "inplace",
        "runtime-dim-mask",
        "runtime_dims_masks",
    ):
        return st.integers(0, 4).map(lambda drawn: drawn == 4)
    if option.name.startswith("attr-") or option.name in ("oflag", "bia_mask"):
        return st.integers(0, 14).map(lambda drawn: drawn == 14)
    return st.integers(0, 4).map(lambda drawn: drawn > 1)


def unknown_options() -> set[str]:
    """Options of registered operations that nothing here draws or leaves alone."""
    drivers = [desc.operation.driver for desc in OPERATIONS.values()]
    names = {option.name for driver in drivers for option in driver.options}
    return names - _LEFT_ALONE - _VALUES.keys()


# Values of options: each function draws the text of one, or None to leave it as it is.


def _several(draw: Draw, option: Option, item: st.SearchStrategy[str], most: int = 4) -> str | None:
    """As many items as the option takes, mostly equal ones."""
    one = draw(item)
    counts = [n for n in range(1, most + 1) if _taken(option, ":".join([one] * n))]
    if not counts:
        return None
    count = draw(st.sampled_from(counts))
    if count == 1 or draw(st.booleans()):
        return ":".join([one] * count)
    return ":".join([one, *(draw(item) for _ in range(count - 1))])


def _taken(option: Option, text: str) -> bool:
    try:
        option.parse(text)
    except (ValueError, BadValue):
        return False
    return True


def _types(draw: Draw, option: Option, sketch: Sketch) -> str | None:
    fitting = [types for types in _PRODUCTS if _taken(option, types)]
    if fitting and not _taken(option, "f32:f32:f32:f32") and draw(st.booleans()):
        return draw(st.sampled_from(fitting))
    return _several(draw, option, st.sampled_from((*_TYPES, *_TYPES, *TYPES)))


def _tags(argument: int, fewer: int = 0) -> Callable[[Draw, Option, Sketch], str | None]:
    def value(draw: Draw, option: Option, sketch: Sketch) -> str | None:
        if sketch.driver.find("cfg"):  # of states and weights, which have other dims
            return draw(st.sampled_from(("abx", "any", "bax:any:bax", "abx:abdcx:any")))
        ndims = len(sketch.dims(argument)) - fewer
        given = st.sampled_from(["abx", *(["any"] if "any" in option.default else [])])
        most = min(sketch.sources, 4)
        return _several(draw, option, st.one_of(given, layouts(max(1, ndims))), max(2, most))

    return value


@st.composite
def layouts(draw: Draw, ndims: int) -> str:
    """The tag of a layout of so many dimensions."""
    letters = "abcdefghijkl"[:ndims]
    common = ["axb", "aBx8b", "aBx16b", "aBx4b", "xba"] if ndims > 1 else ["a"]
    order = "".join(draw(st.permutations(letters)))
    blocks = draw(
        st.lists(
            st.tuples(st.sampled_from((4, 2, 8, 16, 32)), st.sampled_from(letters)), max_size=3
        )
    )
    blocked = {letter for _, letter in blocks}
    outer = "".join(letter.upper() if letter in blocked else letter for letter in order)
    own = outer + "".join(f"{size}{letter}" for size, letter in blocks)
    return draw(st.sampled_from([*common, own, own, own]))


def _strides(draw: Draw, option: Option, sketch: Sketch) -> str | None:
    """Rows with gaps behind them, for tensors whose layout is left as it is."""
    arguments: Sequence[int] = (Arg.SRC, Arg.DST)
    if _taken(option, "::"):
        second = Arg.WEIGHTS if sketch.driver.find("wtag") else Arg.SRC_1
        arguments = (Arg.SRC, second, Arg.DST)
    parts = []
    for argument in arguments:
        dims = sketch.dims(argument)
        order = draw(st.permutations(range(len(dims))))
        strides, step = [0] * len(dims), 1
        for dim in reversed(order):
            step += draw(st.sampled_from((0, 0, 1, 3)))
            strides[dim] = step
            step *= max(1, dims[dim])
        parts.append("x".join(map(str, strides)) if draw(st.booleans()) else "")
    for name in ("stag", "wtag", "dtag", "tag"):
        sketch.options.pop(name, None)
    return ":".join(parts)


def _names(draw: Draw, option: Option, _: Sketch) -> str:
    return draw(st.sampled_from(option.names))


def _flags(draw: Draw, option: Option, _: Sketch) -> str:
    known = [letter for letter in "CHGMRAO" if _taken(option, letter)]
    return "".join(draw(st.lists(st.sampled_from(known), unique=True)))


def _axis(draw: Draw, _: Option, sketch: Sketch) -> str:
    """Where there are groups, one that they divide."""
    group = int(sketch.options.get("group", 1))
    fitting = [n for n, size in enumerate(sketch.dims(Arg.DST)) if size % group == 0]
    return str(draw(st.sampled_from(fitting or [0])))


def _group(draw: Draw, _: Option, sketch: Sketch) -> str:
    """A size that divides some dimension."""
    sizes = [n for extent in sketch.dims(Arg.DST) for n in range(1, extent + 1) if extent % n == 0]
    return str(draw(st.sampled_from(sorted({1, *sizes}))))


def _direction(draw: Draw, option: Option, sketch: Sketch) -> str | None:
    passes = {kind.name for kind in sketch.operation.passes}
    known = {
        "FWD_D": "forward_training",
        "FWD_I": "forward_inference",
        "FWD_B": "forward_training",
        "BWD_D": "backward_data",
        "BWD_DW": "backward",
        "BWD_W": "backward_weights",
        "BWD_WB": "backward_weights",
    }
    return draw(st.sampled_from([text for text, kind in known.items() if kind in passes]))


def _sampled(*texts: str) -> Callable[[Draw, Option, Sketch], str | None]:
    return lambda draw, option, sketch: draw(st.sampled_from(texts))


def _of_lstm(draw: Draw, option: Option, sketch: Sketch) -> str | None:
    """What no other cells have."""
    return "true" if sketch.options.get("alg") == "VANILLA_LSTM" else None


def _gate_order(draw: Draw, option: Option, sketch: Sketch) -> str:
    """The gates of the cell in any order."""
    cell = Alg[CELLS[sketch.options.get("alg", "VANILLA_RNN")]]
    return "".join(draw(st.permutations(GATE_LETTERS[cell])))


def _taps(draw: Draw, option: Option, sketch: Sketch) -> str:
    counts = st.sampled_from("1" if sketch.options.get("alg") == "nearest" else "12345")
    return "x".join(draw(counts) for _ in sketch.dims(Arg.DST)[2:])


def _masks(draw: Draw, option: Option, sketch: Sketch) -> str:
    return str(draw(st.integers(0, (1 << len(sketch.dims(Arg.DST))) - 1)))


def _open_dims(draw: Draw, option: Option, sketch: Sketch) -> str | None:
    """The same dims of src and weights where they are one; layouts are given then."""
    if {"encoding", "grouped"} & sketch.options.keys():
        return None
    for name in ("stag", "wtag", "dtag"):
        if sketch.options.get(name, "any") == "any":
            sketch.options[name] = "abx"
    ndims = len(sketch.dims(Arg.SRC))
    src, weights = (draw(st.integers(0, (1 << ndims) - 1)) for _ in range(2))
    terms = src >> (ndims - 1) & 1
    batch = src & ((1 << (ndims - 2)) - 1)
    weights = batch | terms << (ndims - 2) | weights & 1 << (ndims - 1)
    return f"{src}:{weights}"


def _factors(draw: Draw, option: Option, sketch: Sketch) -> str | None:
    numbers = st.sampled_from(("1", "2", "0.5", "-1", "0.25", "0"))
    return ":".join(draw(numbers) for _ in range(max(1, sketch.sources)))


def _attribute(name: str) -> Callable[[Draw, Option, Sketch], str | None]:
    made = ATTRIBUTES[name]
    return lambda draw, option, sketch: draw(
        made(sketch.operation, len(sketch.dims(sketch.operation.roles[-1].argument)))
    )


_VALUES: Mapping[str, Callable[[Draw, Option, Sketch], Any]] = {
    **dict.fromkeys(("dir", "prop"), _direction),
    **dict.fromkeys(("direction", "activation", "cfg", "scaling", "scaling-proj"), _names),
    **dict.fromkeys(("with-peephole", "with-projection"), _of_lstm),
    "with-lengths": _sampled("true"),
    "gate-order": _gate_order,
    "trivial-strides": _sampled("false"),
    **dict.fromkeys(("sdt", "ddt", "dt", "ss_dt"), _types),
    "bia-dt": _sampled("f32", "bf16", "s8", "s32", "f16"),
    "stag": _tags(Arg.SRC),
    "tag": _tags(Arg.SRC),
    "wtag": _tags(Arg.WEIGHTS),
    "dtag": _tags(Arg.DST),
    "stat_tag": _tags(Arg.SRC, fewer=1),
    "strides": _strides,
    "alg": _names,
    "coordinates": _names,
    "function": _names,
    "masking": _names,
    "order": _names,
    "padding": _names,
    "terms": _names,
    "tie": _names,
    "flags": _flags,
    "axis": _axis,
    "group": _group,
    "alpha": _sampled("1", "0.5", "2", "-1", "0.25"),
    "beta": _sampled("1", "0.5", "2", "-1", "3"),
    "p": _sampled("1", "2", "3", "2.5", "0"),
    "eps": _sampled("0", "0.5", "1e-05", "100"),
    "scale": _sampled("0.5", "-1", "0", "0.125"),
    "scales": _factors,
    "taps": _taps,
    "bia_mask": _masks,
    "runtime-dim-mask": _masks,
    "runtime_dims_masks": _open_dims,
    "oflag": _sampled("s8s8_comp:1", "zp_comp:1", "s8s8_comp:3+zp_comp:1", "zp_comp:2"),
    "inplace": _sampled("true"),
    "masked_rows": _sampled("nan"),
    **{name: _attribute(name) for name in ATTRIBUTES},
}
