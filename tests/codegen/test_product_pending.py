"""How the rows of a tile are shared out among the instructions that multiply the next one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dnnl.kernels.product.unit.deferred_epilogue import Turns


@given(st.integers(1, 64), st.integers(1, 6), st.integers(1, 100))
def test_few_rows_are_left_behind_the_last_turn(rows: int, dots: int, steps: int) -> None:
    turns = Turns.of(rows, dots, steps)
    assert 0 < turns.per_step <= dots
    assert 0 <= turns.per_end <= dots
    taken = turns.count * (turns.per_step * steps + turns.per_end)
    assert taken >= rows // turns.count * turns.count


def test_short_sums_have_turns_behind_their_stores() -> None:
    assert Turns.of(32, 4, 1) == Turns(count=4, per_step=4, per_end=4)
    assert Turns.of(32, 4, 8) == Turns(count=4, per_step=1, per_end=0)
    assert Turns.of(32, 4, 72) == Turns(count=2, per_step=1, per_end=0)
