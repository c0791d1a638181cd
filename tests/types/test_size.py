"""Sizes: what is decided holds for all numbers, and code computes what integers would give."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from operator import itemgetter
from random import Random

import pytest

from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import (
    Descending,
    Size,
    bounds,
    broadcasts,
    is_known,
    is_one,
    larger,
    order,
    smaller,
    surely_at_most,
    surely_below,
    surely_divides,
    surely_equal,
    text,
    typical,
)
from dnnl.types.symbols import Symbols

Operation = Callable[[int, int], int]
Formula = Callable[[list[int]], int]

OPERATIONS: dict[str, Operation] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "up": lambda a, b: -(-a // b),
}
EXTREMES: dict[str, tuple[Operation, Operation]] = {
    "min": (smaller, min),
    "max": (larger, max),
}


def of_constant(value: int, _: list[int]) -> int:
    return value


def of_both(operation: Operation, first: Formula, second: Formula, numbers: list[int]) -> int:
    return operation(first(numbers), second(numbers))


def steps_of(formulas: list[tuple[int, Formula]]) -> list[int]:
    """What the three symbols are multiples of."""
    symbols = (size for size, _ in formulas[:3])
    return [next(iter(size.terms.values())) for size in symbols if isinstance(size, Size)]


def random_formulas(rng: Random, symbols: Symbols) -> list[tuple[int, Formula]]:
    """Sizes, each with what computes the same of the numbers of the three symbols."""
    made: list[tuple[int, Formula]] = []
    for number, multiple in enumerate((1, 1, rng.choice((1, 4)))):
        low = rng.choice((1, 2))
        size = symbols.size(multiple * rng.randint(2, 10), multiple * low, multiple=multiple)
        made.append((size, itemgetter(number)))
    for constant in (rng.randint(-5, 20), rng.randint(1, 20)):
        made.append((constant, partial(of_constant, constant)))
    for _ in range(rng.randint(1, 6)):
        (a, first), (b, second) = rng.choice(made), rng.choice(made)
        name = rng.choice((*OPERATIONS, *EXTREMES))
        if name in EXTREMES:
            own, plain = EXTREMES[name]
        else:
            own = plain = OPERATIONS[name]
            if name not in "+-*" and bounds(b)[0] < 1:
                continue
        made.append((own(a, b), partial(of_both, plain, first, second)))
    return made


@pytest.mark.parametrize("seed", range(8))
def test_random_formulas(seed: int) -> None:
    """Values are between the bounds, and the text of a size has the value of the formula."""
    rng = Random(seed)
    for _ in range(100):
        symbols = Symbols()
        formulas = random_formulas(rng, symbols)
        steps = steps_of(formulas)
        for trial in range(4):
            own = (
                [rng.randint(int(low), 40) for _, low, _ in symbols.ranges]
                if trial
                else [own for own, _, _ in symbols.ranges]
            )
            numbers = [step * number for step, number in zip(steps, own, strict=True)]
            names = {f"s{number}": value for number, value in enumerate(own)}
            for size, compute in formulas:
                want = compute(numbers)
                low, high = bounds(size)
                assert low <= want <= high
                assert eval(text(size), {"min": min, "max": max}, dict(names)) == want
                if not trial:
                    assert typical(size) == want
        assert not symbols.guards


@pytest.mark.parametrize("seed", range(4))
def test_what_is_decided_holds_for_all_numbers(seed: int) -> None:
    """Comparisons without a guard have one outcome; those with one have it where that holds, and
    so have what is sure and all bounds from then on."""
    rng = Random(seed)
    for _ in range(30):
        symbols = Symbols()
        formulas = random_formulas(rng, symbols)
        steps = steps_of(formulas)
        for _ in range(4):
            (a, first), (b, second) = rng.choice(formulas), rng.choice(formulas)
            before = len(symbols.guards)
            sure = surely_at_most(a, b), surely_below(a, b), surely_equal(a, b)
            assert len(symbols.guards) == before
            single, side = is_one(a), order(a, b)
            assert single == (typical(a) == 1)
            below, equal = bool(a < b), bool(a == b)
            guards = " and ".join(map(str, symbols.guards)) or "True"
            for own in product(range(1, 8), repeat=3):
                names = {f"s{number}": value for number, value in enumerate(own)}
                if any(n < low for n, (_, low, _) in zip(own, symbols.ranges, strict=True)):
                    continue
                if not eval(guards, {"min": min, "max": max}, names):
                    continue
                numbers = [step * number for step, number in zip(steps, own, strict=True)]
                x, y = first(numbers), second(numbers)
                for certain, holds in zip(sure, (x <= y, x < y, x == y), strict=True):
                    assert holds or not certain
                assert x == 1 or not single
                assert (x < y, x == y) == (below, equal)
                assert x == y if not side else x <= y if side < 0 else x >= y
                for size, compute in formulas:
                    low, high = bounds(size)
                    assert low <= compute(numbers) <= high


def test_tails_and_blocks() -> None:
    symbols = Symbols()
    rows, eights = symbols.size(300), symbols.size(64, multiple=8)
    blocks = -(-rows // 16)
    assert surely_at_most(rows, 16 * blocks)
    assert surely_below(16 * blocks, rows + 16)
    assert surely_divides(8, eights)
    assert not surely_divides(16, eights)
    assert surely_equal(rows * eights // rows, eights)
    assert (rows % 1, 0 * rows, rows - rows) == (0, 0, 0)
    assert not symbols.guards


def test_an_axis_of_typically_one_element_disappears_by_a_guard() -> None:
    symbols = Symbols()
    single, several = symbols.size(1, 1), symbols.size(5, 1)
    for size, guards in ((several, []), (single, ["s0+-1 == 0"])):
        joined = MemoryDesc((12, size), "f32").reshape((12,) if guards else (12 * size,))
        assert joined.dims[0] == 12 * typical(size)
        assert [str(guard) for guard in symbols.guards if "s0" in str(guard)] == guards


def test_extremes_bound_their_operands() -> None:
    symbols = Symbols()
    rows, padded, most = symbols.size(3), symbols.size(5), symbols.size(7)
    assert surely_at_most(rows, larger(rows, padded))
    assert surely_at_most(smaller(rows, padded), padded)
    assert surely_at_most(smaller(rows, padded), larger(most, padded + 1))
    assert not surely_at_most(larger(rows, padded), rows)
    assert not surely_at_most(rows, 2 * larger(most, padded))
    assert not symbols.guards


@pytest.mark.parametrize(("divisor", "settled"), [(1, (0,)), (16, (0,)), (4096, ())])
def test_what_few_numbers_have_in_common_is_settled(divisor: int, settled: tuple[int]) -> None:
    """A guard on a quotient by a large number leaves too many for a constant to be worth it."""
    symbols = Symbols()
    rows, columns = symbols.size(40), symbols.size(50)
    assert rows // divisor == 40 // divisor
    assert symbols.settled == settled
    assert smaller(2, -(-rows * columns // 4096)) == 1
    assert symbols.settled == settled


def test_quotients_of_quotients() -> None:
    rows = Symbols().size(64)
    for by, more, divisor in product((2, 3, 7), (-5, 0, 1, 6), (2, 5)):
        nested, whole = (
            ((rows + 1) // by + more) // divisor,
            (rows + 1 + by * more) // (by * divisor),
        )
        assert surely_equal(nested, whole)
        for number in range(2, 90):
            expected = ((number + 1) // by + more) // divisor
            assert eval(text(nested), {"s0": number}) == expected
    assert surely_equal(((rows + 15) // 16 + 1) // 2, (rows + 31) // 32)


@pytest.mark.parametrize("seed", range(4))
def test_quotients_without_a_remainder(seed: int) -> None:
    """Products of sums of sizes, as a Reshape to -1 and some others divides."""
    random, symbols = Random(seed), Symbols()
    sizes = [symbols.size(n) for n in (5, 8, 13)]

    def polynomial() -> int:
        terms = (
            random.choice((-3, 1, 2)) * random.choice(sizes) * random.choice((1, *sizes))
            for _ in range(random.randint(1, 3))
        )
        return sum(terms, random.randint(-2, 2) + 64 * sizes[0] * sizes[1] * sizes[2])

    for _ in range(50):
        a, b = polynomial(), polynomial()
        assert surely_equal(a * b // b, a)
        assert not surely_equal((a * b + 1) // b, a * b // b + 1)


def test_guards_are_knowledge() -> None:
    """What a guard says of one symbol, or of a quotient, answers later questions."""
    symbols = Symbols()
    batch, width = symbols.size(8, 1), symbols.size(224, 1)
    assert batch * width != width  # a question about the batch alone
    assert (batch > 1, width * batch >= 2 * width) == (True, True)
    assert width // 4 >= 2
    assert (width > 7, (width + 7) // 8 >= 1, width // 2 >= 4) == (True, True, True)
    assert [str(guard) for guard in symbols.guards] == ["s0+-1 != 0", "((s1)//(4))+-2 >= 0"]
    assert [low for _, low, _ in symbols.ranges] == [1, 1]
    assert not surely_at_most(2, batch), "which must not change while code is generated"


def test_orders_of_strides_ask_nothing() -> None:
    """Strides of a dense tensor fall, and an extent of 1 makes equals of two."""
    symbols = Symbols()
    height, width = symbols.size(30, 1), symbols.size(50, 1)
    strides = [width, 3 * height * width, 1, height * width]
    assert sorted(range(4), key=lambda place: Descending(strides[place])) == [1, 3, 0, 2]
    assert broadcasts(1, height)
    assert broadcasts(height, height)
    assert not symbols.guards


def test_what_needs_a_number_fixes_the_size() -> None:
    symbols = Symbols()
    rows = symbols.size(5)
    assert not is_known(rows)
    assert [*range(rows)] == [0, 1, 2, 3, 4]
    assert [str(guard) for guard in symbols.guards] == ["s0+-5 == 0"]


def test_quotients_of_what_is_at_most_nothing() -> None:
    n = Symbols().size(7, 2, 12)
    quotient = (n - 12) // n
    for number in range(2, 13):
        assert eval(text(quotient), {"s0": number}) == (number - 12) // number
