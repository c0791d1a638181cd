"""Strategies for the problems of cases: the sizes of all tensors, as texts of ``dnnl bench``."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import reject
from hypothesis import strategies as st

from dnnl.language.descriptor import SPATIAL, Grammar
from dnnl.language.options import Driver
from dnnl.language.values import TYPES
from dnnl.types.dtype import DataType
from dnnl.types.typed import FUNCTIONS, STEPS
from tests.layout_strategies import NEAR_VECTORS

Draw = st.DrawFn
Dims = tuple[int, ...]

_CHANNELS = (1, 2, 3, 4, 7, 8, 12, 15, 16, 17, 20, 31, 32, 33, 48, 64, 65)
_IMAGE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 17, 28)
_MOST_ELEMENTS = 2**13
_BATCHES = (2, 1, 3, 4, 0)
_ROWS = (2, 1, 3, 5, 6, 7, 9, 16, 17, 33, 70)
_QUANTIZED = (
    "f32:s4:f32", "bf16:s4:f32", "bf16:u4:bf16", "f16:s4:f32", "f32:s8:f32", "bf16:u8:f32",
    "bf16:f8_e4m3:f32", "bf16:f4_e2m1:f32", "s8:s4:f32", "u8:u4:f32", "u8:s8:f32", "s8:s8:bf16",
)  # fmt: skip


def begun(driver: Driver) -> st.SearchStrategy[tuple[str, dict[str, str]]]:
    """A problem, with options without which it makes no sense."""
    drawn = {
        "attention": _attended, "exact": _functions, "gather": _indexed, "grid_sample": _sampled,
        "matmul": _multiplied, "rnn": _stepped, "scatter": _indexed,
    }  # fmt: skip
    alone = drawn.get(driver.name)
    if alone is not None:
        return alone()
    if isinstance(driver.problem, Grammar):
        whole = st.tuples(_sizes(driver.problem), st.just(dict[str, str]()))
        others = {"conv": _chained, "ip": _quantized_rows}.get(driver.name)
        return whole if others is None else st.one_of(*[whole] * 6, others())
    made = {
        "binary": lambda: _broadcasts(2),
        "concat": _joined,
        "prelu": _shared,
        "reduction": _reduced,
    }
    return st.tuples(made.get(driver.name, _plain)(), st.just({}))


@st.composite
def _functions(draw: Draw) -> tuple[str, dict[str, str]]:
    """A function of elements, on types and as many tensors as it takes."""
    name = draw(st.sampled_from(list(FUNCTIONS)))
    signature = STEPS[FUNCTIONS[name]].signature
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


@st.composite
def _stepped(draw: Draw) -> tuple[str, dict[str, str]]:
    """Steps, layers, a batch and channels, those of the first layer or of a projection apart."""
    layers, steps = draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from((2, 1, 3, 0, 5)))
    batch, channels = draw(st.sampled_from((*_BATCHES, 7, 50))), draw(st.sampled_from(_CHANNELS))
    sizes = f"l{layers}t{steps}mb{batch}sic{channels}"
    other = draw(st.sampled_from(_CHANNELS))
    if layers == 1 and draw(st.booleans()):
        sizes += f"slc{other}"
    if layers == 1 and draw(st.integers(0, 3)) == 3:
        given = {"alg": "VANILLA_LSTM", "with-projection": "true"}
        return f"{sizes}dhc{draw(st.sampled_from(_CHANNELS))}dic{channels}", given
    return sizes, {}


@st.composite
def _sampled(draw: Draw) -> tuple[str, dict[str, str]]:
    """An image of one to three dimensions, and places in it."""
    batch, channels, *space = draw(_shapes(3, 5))
    places = [draw(st.sampled_from((1, 2, 3, 9, 17))) for _ in space]
    kinds = [draw(st.sampled_from(("f32", "bf16", "f16", "f64"))) for _ in range(2)]
    problem = _text((batch, channels, *space), (batch, *places, len(space)))
    return problem, {"sdt": ":".join(kinds)}


@st.composite
def _attended(draw: Draw) -> tuple[str, dict[str, str]]:
    """Heads of queries, of keys and of values, and perhaps a mask that is broadcast."""
    batch, served, group = (draw(st.sampled_from((1, 2, 3))) for _ in range(3))
    rows, keys = draw(st.sampled_from((*_ROWS, 130))), draw(st.sampled_from((*_ROWS, 0, 200)))
    depth, width = (draw(st.sampled_from((1, 3, 8, 16, 17, 40))) for _ in range(2))
    heads = served * group
    tensors: list[Dims] = [
        (batch, heads, rows, depth),
        (batch, served, keys, depth),
        (batch, served, keys, width),
    ]
    if draw(st.booleans()):
        tensors.append(tuple(draw(st.sampled_from((own, 1))) for own in (batch, heads, rows, keys)))
    kinds = [draw(st.sampled_from(("f32", "bf16", "f16"))) for _ in range(3)]
    return _text(*tensors), {"sdt": ":".join(kinds)}


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
    kind = draw(st.sampled_from((*("dense",) * 5, "quantized", "quantized", "sparse", "grouped")))
    if kind == "dense":
        return draw(_products()), {}
    if kind == "quantized":
        return draw(_quantized())
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
def _quantized(draw: Draw) -> tuple[str, dict[str, str]]:
    """A product of weights of few bits or of bytes, with values along all of its dimensions, and
    sums long enough to be cut in blocks."""
    group = draw(st.sampled_from((32, 8, 16)))
    k = draw(st.one_of(st.integers(1, 17).map(lambda count: count * group), st.integers(1, 600)))
    m, n = draw(st.sampled_from(_ROWS)), draw(st.sampled_from((*NEAR_VECTORS, 64, 128)))
    masks = ["common:2", "per_oc"]
    if k % group == 0:
        masks += [f"per_ocic:{kind}:{group}x1" for kind in ("f32", "bf16", "e8m0")]
    zeros = [mask.replace("f32", "s32").replace("bf16", "s8") for mask in masks if "e8" not in mask]
    tag = draw(st.sampled_from(("any", "ab", "ba")))
    return _text([m, k], [k, n]), {"wtag": tag, **draw(_quantization(masks, zeros))}


@st.composite
def _quantized_rows(draw: Draw) -> tuple[str, dict[str, str]]:
    """An inner product over several dimensions, with values for all columns or for each."""
    size, m = draw(st.sampled_from((1, 2, 3))), draw(st.sampled_from(_ROWS))
    channels, n = draw(st.integers(1, 70)), draw(st.sampled_from((*NEAR_VECTORS, 64, 128)))
    masks = ["common:2", "per_oc"]
    tag = draw(st.sampled_from(("any", "abx", "axb", "bxa")))
    values = draw(_quantization(masks, masks))
    return f"mb{m}ic{channels}ih{size}oc{n}", {"dir": "FWD_I", "wtag": tag, **values}


@st.composite
def _quantization(draw: Draw, scales: Sequence[str], zeros: Sequence[str]) -> dict[str, str]:
    """Types of a product, and some scales and zero points of its weights and src."""
    types = draw(st.sampled_from(_QUANTIZED))
    options = {"dt": types}
    parts = [f"wei:{draw(st.sampled_from(scales))}"] if draw(st.booleans()) else []
    parts += ["src:common:0.25"] if draw(st.booleans()) else []
    if parts:
        options["attr-scales"] = "+".join(parts)
    parts = [f"wei:{draw(st.sampled_from(zeros))}"] if draw(st.booleans()) else []
    parts += ["src:common:3"] if types[1:2] == "8" and draw(st.booleans()) else []
    if parts:
        options["attr-zero-points"] = "+".join(parts)
    if types[1:2] != "8" and draw(st.booleans()):
        options["attr-fpmath"] = draw(st.sampled_from(("bf16:true", "strict:true", "any:true")))
    return options


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
