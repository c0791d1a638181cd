"""Exact quotients of polynomials of sizes."""

from __future__ import annotations

from dnnl.types.size_bounds import Key, Terms, without

_MOST_STEPS = 32


def exact_quotient(a: Terms, b: Terms) -> dict[Key, int] | None:
    """The polynomial q with a == b * q, by long division; None where it does not end without a
    remainder, in integers."""
    left, quotient = dict(a), dict[Key, int]()
    head = max(b, key=_order)
    for _ in range(_MOST_STEPS):
        if not left:
            return quotient
        first = max(left, key=_order)
        key, rest = without(first, head), left[first] % b[head]
        if key is None or rest:
            return None
        quotient[key] = factor = left[first] // b[head]
        for other, own in b.items():
            product = tuple(sorted((*key, *other)))
            left[product] = left.get(product, 0) - factor * own
            if not left[product]:
                del left[product]
    return None


def _order(key: Key) -> tuple[int, Key]:
    """An order of terms that products keep, so that each step of a division removes the last."""
    return len(key), key
