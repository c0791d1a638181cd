"""The random numbers of dropouts, and what becomes of values."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl.reference import dropout as reference


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        # Those of Random123, the library of who found the generator.
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]
) -> None:
    assert reference.philox(np.array(counter, np.uint64), key).tolist() == list(words)


def test_counters() -> None:
    """The block and the halves of seed and offset, each in its place."""
    seed, offset = 0x0123456789ABCDEF, 0x00FEDCBA98765432
    counter = np.array([offset & 0xFFFFFFFF, offset >> 32, 8, 0], np.uint64)
    want = reference.philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    assert reference.random_bits(12, seed, offset)[8:].tolist() == want.tolist()
    want = reference.philox(np.array([8, 9, 10, 11], np.uint64), (seed & 0xFFFFFFFF,) * 2)
    assert reference.random_bits(12, seed)[8:].tolist() == want.tolist()


@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("probability", [0.0, 0.25, 0.9, 1.0])
def test_what_is_kept(probability: float, offset: int) -> None:
    values = np.linspace(1, 2, 4000).reshape(40, 100)
    result, mask = reference.dropout(values, probability, 3, offset)
    assert abs(mask.mean() - (1 - probability)) < 0.03
    survivors = mask == 1
    assert (result[~survivors] == 0).all()
    np.testing.assert_allclose(result[survivors] * (1 - np.float32(probability)), values[survivors])
