"""How the rows of a tile are shared out among the instructions that multiply the next one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dnnl.kernels.product.unit.deferred_epilogue import EpilogueSchedule


@given(st.integers(1, 64), st.integers(1, 6), st.integers(1, 100))
def test_few_rows_are_left_behind_the_last_turn(rows: int, dots: int, steps: int) -> None:
    schedule = EpilogueSchedule.of(rows, dots, steps)
    assert 0 < schedule.per_step <= dots
    assert 0 <= schedule.per_end <= dots
    taken = schedule.count * (schedule.per_step * steps + schedule.per_end)
    assert taken >= rows // schedule.count * schedule.count


def test_short_sums_have_turns_behind_their_stores() -> None:
    assert EpilogueSchedule.of(32, 4, 1) == EpilogueSchedule(count=4, per_step=4, per_end=4)
    assert EpilogueSchedule.of(32, 4, 8) == EpilogueSchedule(count=4, per_step=1, per_end=0)
    assert EpilogueSchedule.of(32, 4, 72) == EpilogueSchedule(count=2, per_step=1, per_end=0)
