"""Problems of the sizes that networks have, out of small ones: some of their sizes, multiplied."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from math import prod

from hypothesis import strategies as st

from dnnl.language.descriptor import SPATIAL, Grammar
from dnnl.language.options import Driver

_FACTORS = (2, 3, 4, 5, 8, 13, 16, 32, 64, 128)
_MOST_ELEMENTS = 2**21
_MOST_PRODUCTS = 2**29
_NUMBER = re.compile(r"([a-z]+)(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_CHANNELS = "ic", "oc"


@st.composite
def grown(draw: st.DrawFn, driver: Driver, problem: str) -> str:
    """The problem with some sizes multiplied, the same ones in all tensors."""
    if isinstance(driver.problem, Grammar):
        return draw(_grown_numbers(driver.problem, problem))
    tensors = [list(map(int, dims.split("x"))) for dims in problem.split(":")]
    named = [_names(driver, place, dims) for place, dims in enumerate(tensors)]
    sizes: dict[str, int] = {}
    for names, dims in zip(named, tensors, strict=True):
        for name, size in zip(names, dims, strict=True):
            sizes[name] = max(size, sizes.get(name, 0))
    factors = draw(_factors(sizes, [*named, [name for name in sizes if name != "k"]]))
    for names, dims in zip(named, tensors, strict=True):
        # A size of one stands for all of them, unless no tensor has another one.
        dims[:] = [
            size * factors[name] if size > 1 or sizes[name] == 1 else size
            for name, size in zip(names, dims, strict=True)
        ]
    return ":".join("x".join(map(str, dims)) for dims in tensors)


def _names(driver: Driver, place: int, dims: Sequence[int]) -> list[str]:
    """What tells apart the dimensions of all tensors."""
    names = [f"d{dim}" for dim in range(len(dims))]
    if driver.name == "matmul":
        names[-2:] = ["k", "n"] if place else ["m", "k"]
    return names


@st.composite
def _grown_numbers(draw: st.DrawFn, grammar: Grammar, problem: str) -> str:
    """Batches, channels and images; the size of a result follows from its window."""
    numbers = _NUMBER.findall(problem)
    space = {key for key, _ in numbers if key in grammar.spatial}
    windows = {key for key in space if key[0] == "k"}
    images = {key for key in space if key[0] in ("i" if windows else "io")}
    sizes = {key: int(text) for key, text in numbers if key in images | {"mb", *_CHANNELS}}
    taps = prod(int(text) ** _times(key, windows) for key, text in numbers if key in windows)
    # src, weights as those of a fully connected layer, and dst.
    tensors = [sizes.keys() - {key} for key in ("oc", "mb", "ic") if key in sizes]
    factors = draw(_factors(sizes, tensors, taps))
    left_out = {key for key in space if windows and key[0] == "o"}
    return "".join(
        f"{key}{sizes[key] * factors[key] if key in sizes else text}"
        for key, text in numbers
        if key not in left_out
    )


def _times(key: str, given: Container[str]) -> int:
    """In how many dimensions a problem has this size: those that are not given as well."""
    letter = key[-1]
    if len(key) != 2 or letter not in SPATIAL or key[0] + SPATIAL[-1] in given:
        return 1
    return len(SPATIAL) - SPATIAL.index(letter)


@st.composite
def _factors(
    draw: st.DrawFn, sizes: Mapping[str, int], tensors: Sequence[Iterable[str]], taps: int = 1
) -> dict[str, int]:
    """By what sizes are multiplied: no tensor becomes large, and no product takes seconds."""
    factors = dict.fromkeys(sizes, 1)

    def room(most: int, names: Iterable[str]) -> int:
        used = prod((sizes[name] * factors[name]) ** _times(name, sizes) for name in names)
        return int(most // max(1, used))

    for name in draw(st.permutations(list(sizes))):
        rooms = [room(_MOST_ELEMENTS, names) for names in tensors if name in names]
        most = min([room(_MOST_PRODUCTS // taps, sizes), *rooms])
        fitting = [factor for factor in _FACTORS if factor ** _times(name, sizes) <= most]
        if fitting:
            factors[name] = draw(st.sampled_from(fitting))
    return factors
