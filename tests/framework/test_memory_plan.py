"""The arena: what is needed at the same time lies apart, what is not shares."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dnnl.framework.memory_plan import ALIGNMENT, Lifetime, lifetimes, place


def test_chain_needs_two_buffers() -> None:
    needed = {step: Lifetime(1000, step, step + 1) for step in range(10)}
    assert place(needed).size == 2 * 1024


def test_lifetimes_of_inputs_and_outputs() -> None:
    sizes = {0: 8, 1: 8, 2: 8, 3: 8}
    found = lifetimes(sizes, [[0, 1], [1, 2]], before=[0], after=[2])
    assert found == {0: Lifetime(8, 0, 1), 1: Lifetime(8, 1, 2), 2: Lifetime(8, 2, 3)}


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 20), st.integers(0, 6)), max_size=30)
)
def test_no_overlap(entries: list[tuple[int, int, int]]) -> None:
    needed = {i: Lifetime(size, at, at + more) for i, (size, at, more) in enumerate(entries)}
    arena = place(needed)
    for i, j in combinations(needed, 2):
        if needed[i].overlaps(needed[j]):
            first, second = sorted((i, j), key=lambda s: arena.offsets[s])
            apart = arena.offsets[first] + needed[first].size <= arena.offsets[second]
            assert apart or not needed[first].size or not needed[second].size
    for i, life in needed.items():
        assert arena.offsets[i] % ALIGNMENT == 0
        assert arena.offsets[i] + life.size <= arena.size
