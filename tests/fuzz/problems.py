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

from dnnl.codegen.exact import FUNCTIONS
from dnnl.errors import Error
from dnnl.language.descriptor import SPATIAL, Grammar
from dnnl.language.errors import BadValue
from dnnl.language.options import Driver, Option
from dnnl.language.values import TYPES
from dnnl.primitives.operation import Operation
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from tests.fuzz.problem_attributes import ATTRIBUTES
from tests.layout_strategies import NEAR_VECTORS

Draw = st.DrawFn
Dims = tuple[int, ...]

_CHANNELS = (1, 2, 3, 4, 7, 8, 12, 15, 16, 17, 20, 31, 32, 33, 48, 64, 65)
_IMAGE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 17, 28)
_MOST_ELEMENTS = 2**13
_BATCHES = (2, 1, 3, 4, 0)
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
    "mb", "ctx-init", "ctx-exe",
    # Refused wherever they are not what they are by default.
    "attr-precomputed-reductions", "cross-engine",
    # Parts of the problem.
    "encoding", "grouped",
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
def cases(draw: Draw, kinds: Sequence[str] = tuple(OPERATIONS)) -> Case:
    """A case of an operation of one of these kinds."""
    operation = OPERATIONS[draw(st.sampled_from(kinds))].operation
    sketch = Sketch(operation, *draw(_begun(operation.driver)))
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


# Problems


def _begun(driver: Driver) -> st.SearchStrategy[tuple[str, dict[str, str]]]:
    """A problem, with options without which it makes no sense."""
    alone = {"exact": _functions, "gather": _indexed, "matmul": _multiplied}.get(driver.name)
    if alone is not None:
        return alone()
    if isinstance(driver.problem, Grammar):
        whole = st.tuples(_sizes(driver.problem), st.just(dict[str, str]()))
        return st.one_of(*[whole] * 6, _chained()) if driver.name == "conv" else whole
    made = {
        "binary": lambda: _broadcasts(2), "concat": _joined, "prelu": _shared,
        "reduction": _reduced,
    }  # fmt: skip
    return st.tuples(made.get(driver.name, _plain)(), st.just({}))


@st.composite
def _functions(draw: Draw) -> tuple[str, dict[str, str]]:
    """A function of elements, on types and as many tensors as it takes."""
    name = draw(st.sampled_from(list(FUNCTIONS)))
    signature = FUNCTIONS[name].signature
    kind, other = (DataType[draw(st.sampled_from(TYPES))] for _ in range(2))
    alike = (kind,) * signature.sources
    boolean = DataType.boolean
    signatures = [(kind, *alike), (boolean, *alike), (kind, boolean, *alike[1:]), (other, *alike)]
    fitting = [kinds for kinds in signatures if signature.fits(*kinds)]
    if not fitting:
        reject()
    dst, *sources = draw(st.sampled_from(fitting))
    problem = draw(_broadcasts(signature.sources))
    return problem, {"alg": name, "ddt": str(dst), "sdt": ":".join(map(str, sources))}


@st.composite
def _indexed(draw: Draw) -> tuple[str, dict[str, str]]:
    """A tensor, an axis of it, and how many slices are taken along that, or single elements."""
    dims = draw(_shapes(1, 5))
    count = draw(st.sampled_from((2, 1, 3, *NEAR_VECTORS)))
    kinds = draw(st.sampled_from(TYPES)), draw(st.sampled_from(("s32", "s64")))
    axis = draw(st.integers(0, len(dims) - 1))
    elements = draw(st.booleans())
    indices = [*dims[:axis], count, *dims[axis + 1 :]] if elements else [count]
    return _text(dims, indices), {"axis": str(axis), "sdt": ":".join(kinds)}


def _text(*tensors: Sequence[int]) -> str:
    return ":".join("x".join(map(str, dims)) for dims in tensors)


@st.composite
def _shapes(draw: Draw, least: int, most: int, *, empty: bool = False) -> Dims:
    """Dims of at most ``_MOST_ELEMENTS`` elements; a list, as hypothesis knows how to shorten."""
    sizes = (2, 1, 3, *NEAR_VECTORS, 512)
    dims = draw(st.lists(st.sampled_from((*sizes, 1, 2, 3)), min_size=least, max_size=most))
    budget = _MOST_ELEMENTS
    for place, size in enumerate(dims):
        dims[place] = min(size, budget)
        budget //= dims[place]
    if empty and draw(st.integers(0, 19)) == 19:
        dims[draw(st.integers(0, len(dims) - 1))] = 0
    return tuple(dims)


@st.composite
def _plain(draw: Draw) -> str:
    return _text(draw(_shapes(1, 6, empty=True)))


@st.composite
def _broadcasts(draw: Draw, count: int) -> str:
    """Shapes of which each has ones where it likes."""
    dims = draw(_shapes(1, 5))
    tensors = [[1 if draw(st.integers(0, 3)) == 3 else size for size in dims] for _ in range(count)]
    return _text(*tensors)


@st.composite
def _shared(draw: Draw) -> str:
    """A shape, and one that has ones in its stead where it likes."""
    dims = draw(_shapes(1, 5, empty=True))
    return _text(dims, [1 if draw(st.booleans()) else size for size in dims])


@st.composite
def _reduced(draw: Draw) -> str:
    """A shape, and the same with ones where it likes."""
    dims = draw(_shapes(1, 6, empty=True))
    left = [size if draw(st.booleans()) or not size else 1 for size in dims]
    return _text(dims, left)


@st.composite
def _joined(draw: Draw) -> str:
    dims = draw(_shapes(2, 5))
    more = draw(st.lists(st.sampled_from(_CHANNELS), max_size=3))
    return _text(dims, *((dims[0], size, *dims[2:]) for size in more))


@st.composite
def _chained(draw: Draw) -> tuple[str, dict[str, str]]:
    """A 1x1 convolution that ends with a depthwise one."""
    batch, size = draw(st.sampled_from((2, 1, 3))), draw(st.sampled_from(_IMAGE[3:]))
    channels = f"ic{draw(st.sampled_from(_CHANNELS))}", f"oc{draw(st.sampled_from(_CHANNELS))}"
    window = draw(st.sampled_from(("k3s1p1", "k3s2p1", "k5s2p1", "k3s1p0")))
    kind = draw(st.sampled_from(("", "", ":u8", ":s8", ":bf16", ":f32")))
    before, after = (draw(st.sampled_from(("", "relu", "linear:2:1"))) for _ in range(2))
    entries = "+".join(part for part in (before, f"dw:{window}{kind}", after) if part)
    return f"mb{batch}{channels[0]}ih{size}{channels[1]}kh1", {"attr-post-ops": entries}


@st.composite
def _multiplied(draw: Draw) -> tuple[str, dict[str, str]]:
    """A product of matrices; seldom one with a sparse factor, or with groups."""
    kind = draw(st.sampled_from((*("dense",) * 5, "sparse", "grouped")))
    if kind == "dense":
        return draw(_products()), {}
    m, k, n = (draw(st.sampled_from((2, 1, 3, *NEAR_VECTORS))) for _ in range(3))
    if kind == "sparse":
        form = draw(st.sampled_from(("csr", "coo"))) + draw(st.sampled_from(("", "+0.5", "+0.99")))
        side = draw(st.sampled_from(("{}::", ":{}:")))
        return _text([m, k], [k, n]), {"encoding": side.format(form)}
    sizes = draw(st.lists(st.sampled_from((1, 0, 2, 3, *NEAR_VECTORS)), min_size=1, max_size=5))
    dim, total = draw(st.sampled_from((0, 1))), max(1, sum(sizes))
    sizes[-1] += total - sum(sizes)
    groups = f"{dim}:{len(sizes)}:{'+'.join(map(str, sizes))}"
    m, k = (m, total) if dim else (total, k)
    return _text([m, k], [k, n]), {"grouped": groups}


@st.composite
def _products(draw: Draw) -> str:
    m, k, n = (draw(st.sampled_from((2, 1, 3, *NEAR_VECTORS))) for _ in range(3))
    batch = draw(st.lists(st.sampled_from((2, 1, 3, 5)), max_size=3))
    if not draw(st.integers(0, 15)):
        m = 0
    elif not draw(st.integers(0, 15)):
        k = 0
    shared = draw(st.sampled_from(("both", "src", "weights")))
    ones = [1] * len(batch)
    first = ones if shared == "weights" else batch
    second = ones if shared == "src" else batch
    return _text([*first, m, k], [*second, k, n])


def _groups(grammar: Grammar) -> tuple[int, ...]:
    """Numbers of groups, 0 where a problem has none."""
    if "g" not in grammar.head:
        return (0,)
    return (1, 2, 3, 8, 16) if "g" in grammar.need else (0, 0, 0, 1, 2, 3, 8, 16)


@st.composite
def _sizes(draw: Draw, grammar: Grammar) -> str:
    """Keys with numbers."""
    windows, resized = "kh" in grammar.spatial, "oh" in grammar.spatial
    space = draw(st.integers(max(0, grammar.lowest - 2), 3))
    letters = SPATIAL[3 - space :]
    groups = draw(st.sampled_from(_groups(grammar)))
    parts = [f"g{groups}"] if groups else []
    parts.append(f"mb{draw(st.sampled_from(_BATCHES))}")
    for key in ("ic", "oc"):
        if key in grammar.head:
            most = 4 if groups > 3 else len(_CHANNELS)
            size = draw(st.sampled_from(_CHANNELS[:most])) * max(1, groups)
            parts.append(f"{key}{size}")
    most = len(_IMAGE) - 3 * max(0, space - 1)
    for letter in letters:
        size = draw(st.sampled_from(_IMAGE[:most]))
        parts.append(f"i{letter}{size}")
        if windows:
            parts += draw(_window(letter, size, grammar.window == "up"))
        elif resized:
            parts.append(f"o{letter}{draw(st.sampled_from(_IMAGE[:most]))}")
    for key in grammar.tail:
        if draw(st.booleans()):
            parts.append(f"{key}{draw(st.sampled_from(_TAILS[key]))}")
    return "".join(parts)


_TAILS = {
    "eps": ("0.001", "1e-05", "1"), "ls": ("5", "1", "2", "3", "4", "7"),
    "alpha": ("1", "0.0001"), "beta": ("1", "0.5", "0.75", "0.6"), "k": ("1", "2", "0.5"),
}  # fmt: skip


@st.composite
def _window(draw: Draw, letter: str, size: int, up: bool) -> list[str]:
    """Sizes for one letter of space: a window that fits, with steps, padding and dilation; the
    result of a transpose, which goes ``up``, may be smaller or larger than that."""
    kernel = draw(st.sampled_from((1, 3, 2, 4, 5, 7)))
    step, padding = draw(st.sampled_from((1, 2, 3))), draw(st.sampled_from((0, 1, 2, 3)))
    dilation = draw(st.sampled_from((0, 0, 0, 1, 2)))
    kernel, padding = min(kernel, size + 2), min(padding, kernel)
    reach = (kernel - 1) * (dilation + 1) + 1
    windows = (size + 2 * padding - reach) // step + 1
    windows += draw(st.sampled_from((0, 0, 0, -1, 1)))
    if up:
        steps = (size - 1) * step + reach
        padding = min(padding, steps - 1)
        windows = steps - 2 * padding + draw(st.sampled_from((0, 0, -1, 1, 2)))
    if windows <= 0:
        windows, dilation = 1, 0
    numbers = {"o": windows, "k": kernel, "s": step, "p": padding, "d": dilation}
    return [f"{key}{letter}{number}" for key, number in numbers.items()]


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
    known = [letter for letter in "CHGMRA" if _taken(option, letter)]
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
        "FWD_D": "forward_training", "FWD_I": "forward_inference", "FWD_B": "forward_training",
        "BWD_D": "backward_data", "BWD_DW": "backward", "BWD_W": "backward_weights",
    }  # fmt: skip
    return draw(st.sampled_from([text for text, kind in known.items() if kind in passes]))


def _sampled(*texts: str) -> Callable[[Draw, Option, Sketch], str | None]:
    return lambda draw, option, sketch: draw(st.sampled_from(texts))


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
    "dir": _direction,
    **dict.fromkeys(("sdt", "ddt", "dt", "ss_dt"), _types),
    "bia-dt": _sampled("f32", "bf16", "s8", "s32", "f16"),
    "stag": _tags(Arg.SRC),
    "tag": _tags(Arg.SRC),
    "wtag": _tags(Arg.WEIGHTS),
    "dtag": _tags(Arg.DST),
    "stat_tag": _tags(Arg.SRC, fewer=1),
    "strides": _strides,
    "alg": _names,
    "flags": _flags,
    "axis": _axis,
    "group": _group,
    "alpha": _sampled("1", "0.5", "2", "-1", "0.25"),
    "beta": _sampled("1", "0.5", "2", "-1", "3"),
    "p": _sampled("1", "2", "3", "2.5", "0"),
    "eps": _sampled("0", "0.5", "1e-05", "100"),
    "scales": _factors,
    "bia_mask": _masks,
    "runtime-dim-mask": _masks,
    "runtime_dims_masks": _open_dims,
    "oflag": _sampled("s8s8_comp:1", "zp_comp:1", "s8s8_comp:3+zp_comp:1", "zp_comp:2"),
    "inplace": _sampled("true"),
    **{name: _attribute(name) for name in ATTRIBUTES},
}
