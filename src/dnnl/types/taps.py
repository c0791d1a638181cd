"""Which elements along one axis make each element of another, and with which weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from dnnl.errors import InvalidArguments

Places = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]
_TOO_FAR = 2**31
_UNSURE = 1e-4  # how far sums may be from 1, in parts of their largest terms
_NO_WEIGHT = 2.0**-40  # what rounding leaves of 0


@dataclass(frozen=True, init=False, repr=False)
class Taps:
    """Along an axis, element i is the sum of the elements ``places[:, i]`` times
    ``weights[:, i]``; both arrays are [taps, elements], and the weights of each element sum up to
    1.

    An element is a part only where its weight is not 0, so that an infinity stays where it is.
    Taps of the same element are joined, and elements that need fewer taps than others repeat one of
    theirs, with its weight shared out. Equal taps are equal values.

    >>> Taps([[0, 0, 1], [0, 1, 1]], [[1, 0.5, 1], [0, 0.5, 0]]).weights
    array([[0.5, 0.5, 0.5],
           [0.5, 0.5, 0.5]])
    """

    count: int
    """How many taps each element has."""
    elements: int
    _places: bytes
    _weights: bytes

    def __init__(self, places: ArrayLike, weights: ArrayLike) -> None:
        """Raises InvalidArguments unless both are [taps, elements], with at least one of each, the
        places integers from 0 and the weights finite numbers."""
        where, parts = _settled(_read_places(places), _read_weights(weights))
        self._fill(count=len(where), elements=where.shape[1])
        self._fill(_places=where.tobytes(), _weights=parts.tobytes())

    def _fill(self, **given: object) -> None:
        for name, value in given.items():
            object.__setattr__(self, name, value)

    @cached_property
    def places(self) -> Places:
        """Which elements are taken: [taps, elements]."""
        return np.frombuffer(self._places, np.int64).reshape(self.count, self.elements)

    @cached_property
    def weights(self) -> Weights:
        """By what they are multiplied, never 0: [taps, elements]."""
        return np.frombuffer(self._weights, np.float64).reshape(self.count, self.elements)

    @cached_property
    def beyond(self) -> int:
        """The least number of elements that has all of these places."""
        return int(self.places.max()) + 1

    def table(self, old: int, new: int) -> tuple[Places, Weights]:
        """The places among ``old`` elements and the weights of ``new`` ones, which these are of."""
        assert (self.beyond <= old, new) == (True, self.elements), "checked with the description"
        return self.places, self.weights

    def __repr__(self) -> str:
        # What is built is stored under its repr, which has to tell one from another.
        digest = blake2b(self._places + self._weights, digest_size=16).hexdigest()
        sizes = f"{self.count} for each of {self.elements} elements, of {self.beyond}"
        return f"Taps({sizes}: {digest})"


def _read_places(places: ArrayLike) -> Places:
    """Raises InvalidArguments for what are no places."""
    read = _read("places", places)
    if read.dtype.kind not in "iu" or read.min() < 0 or read.max() >= _TOO_FAR:
        rule = f"expected integers from 0, below {_TOO_FAR}"
        raise InvalidArguments("places", _seen(read), rule)
    return read.astype(np.int64)


def _read_weights(weights: ArrayLike) -> Weights:
    """Raises InvalidArguments for what are no weights of a mean."""
    read = _read("weights", weights)
    if read.dtype.kind not in "iuf" or not np.isfinite(read := read.astype(np.float64)).all():
        raise InvalidArguments("weights", _seen(read), "expected finite numbers")
    if (np.abs(read.sum(0) - 1.0) > _UNSURE * np.maximum(1.0, np.abs(read).sum(0))).any():
        rule = "those of each element must sum up to 1"
        raise InvalidArguments("weights", _seen(read), rule, "axis 0 is that of taps")
    return read


def _read(name: str, given: ArrayLike) -> np.ndarray:
    """A matrix of numbers; raises InvalidArguments for anything else."""
    rule = "expected an array [taps, elements] of at least one each"
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        raise InvalidArguments(name, given, rule) from None
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidArguments(name, _seen(array), rule)
    return array


def _seen(array: np.ndarray) -> str:
    """An array in a message."""
    return np.array2string(array, threshold=16, separator=", ") + f" of shape {array.shape}"


def _settled(places: Places, weights: Weights) -> tuple[Places, Weights]:
    """Places and weights in which no weight is 0, without taps that are needed nowhere."""
    if places.shape != weights.shape:
        rule = f"expected the shape of places, {places.shape}"
        raise InvalidArguments("weights", weights.shape, rule)
    places, weights = _joined(places.T, (weights / weights.sum(0)).T)
    places, weights = _ordered(places, weights, np.abs(weights) < _NO_WEIGHT)
    counts = np.count_nonzero(np.abs(weights) >= _NO_WEIGHT, 1)[:, np.newaxis]
    most = counts.max()
    more = np.arange(most) >= counts
    places = np.where(more, places[:, :1], places[:, :most])
    shared = weights[:, :1] / (most - counts + 1)
    weights = np.where(more | (np.arange(most) == 0), shared, weights[:, :most])
    return np.ascontiguousarray(places.T), np.ascontiguousarray(weights.T)


def _joined(places: Places, weights: Weights) -> tuple[Places, Weights]:
    """Places [elements, taps] in rising order, the first of equal ones with all of their weight."""
    places, weights = _ordered(places, weights, places)
    first = np.ones(places.shape, np.bool_)
    first[:, 1:] = places[:, 1:] != places[:, :-1]
    sums = np.zeros(places.shape)
    sums[first] = np.add.reduceat(weights.ravel(), np.flatnonzero(first))
    return places, sums


def _ordered(places: Places, weights: Weights, key: np.ndarray) -> tuple[Places, Weights]:
    """Places and weights [elements, taps] with the ``key`` of each element rising."""
    order = np.argsort(key, 1, kind="stable")
    return np.take_along_axis(places, order, 1), np.take_along_axis(weights, order, 1)
