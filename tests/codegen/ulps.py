"""The errors of the elementary functions over all floats: ``python -m tests.codegen.ulps``.

    python -m tests.codegen.ulps                          all functions, all 2^32 floats: hours
    python -m tests.codegen.ulps --stride=97 exp log      two of them, one float of 97

An error is the distance of a generated kernel's result to NumPy's in f64, in units of the last
place of an f32 there (denormal numbers have one of 2^-149); it is infinite where only one of both
is NaN or infinite. The truth for erf and erfc is that of PyTorch in f64. `FUNCTIONS` says what each
function promises on every instruction set, and ``docs/numerics.md`` has the figures.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dnnl.codegen.functions import expression
from dnnl.codegen.isa import Isa
from dnnl.codegen.math import arithmetic, trigonometry
from dnnl.codegen.math import f32 as functions
from dnnl.runtime.threads import available_cpus
from dnnl.types import algorithms
from dnnl.types.kinds import Alg
from tests.codegen.lanes import F32Array, VectorFunction, prepared, runnable_rows

F64Array = NDArray[np.float64]
Found = dict[str, tuple[F32Array, F64Array]]
CHUNK = 2**18
FLOATS = 2**32


@dataclass(frozen=True)
class Function:
    """A function, the same of f64 arrays, and the largest error in ulps; where that holds for
    results of at least ``normal`` only, smaller ones are left out."""

    emit: VectorFunction
    truth: Callable[[F64Array], F64Array]
    bound: float
    normal: float = 0.0


def _erf(x: F64Array) -> F64Array:
    return np.asarray(torch.erf(torch.from_numpy(x)).numpy())


def _normal_cdf(x: F64Array) -> F64Array:
    return np.asarray(torch.special.erfc(torch.from_numpy(x * -math.sqrt(0.5))).numpy() / 2.0)


def _logistic(x: F64Array) -> F64Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _softplus(x: F64Array) -> F64Array:
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def _gelu_tanh(x: F64Array) -> F64Array:
    return x * _logistic(math.sqrt(8.0 / math.pi) * x * (1.0 + 0.044715 * x * x))


def _alg(name: str) -> VectorFunction:
    computed = algorithms.eltwise(Alg[f"eltwise_{name}"], 1.0)
    return lambda e, x: expression.emit(e, computed, [x])


def _rsqrt(e: object, x: object) -> object:
    return arithmetic.reciprocal(e, arithmetic.square_root(e, x))  # type: ignore[arg-type]


# Below this a factor is denormal, or its exponent large, and gelu, swish and mish lose digits.
_GATE = 2.0**-20
FUNCTIONS = {
    "exp": Function(functions.exp, np.exp, 1.5),
    "log": Function(functions.log, np.log, 1.5),
    "tanh": Function(functions.tanh, np.tanh, 2),
    "erf": Function(functions.erf, _erf, 2),
    "logistic": Function(functions.logistic, _logistic, 2.5, 2.0**-125),
    "sqrt": Function(arithmetic.square_root, np.sqrt, 0.5),
    "rsqrt": Function(_rsqrt, lambda x: 1.0 / np.sqrt(x), 1.5),
    "sin": Function(trigonometry.sin, np.sin, 1.6),
    "cos": Function(trigonometry.cos, np.cos, 1.6),
    "expm1": Function(functions.expm1, np.expm1, 2),
    "log1p": Function(functions.log1p, np.log1p, 1.5),
    "softplus": Function(functions.softplus, _softplus, 3),
    "swish": Function(_alg("swish"), lambda x: x * _logistic(x), 4, _GATE),
    "mish": Function(_alg("mish"), lambda x: x * np.tanh(_softplus(x)), 5, _GATE),
    "gelu_tanh": Function(_alg("gelu_tanh"), _gelu_tanh, 32, _GATE),
    "gelu_erf": Function(_alg("gelu_erf"), lambda x: x * _normal_cdf(x), 34, _GATE),
}


def errors(
    got: F32Array, want: F64Array, rounded: F32Array, normal: float = 0.0
) -> tuple[NDArray[np.intp], F64Array]:
    """The places where a result is not the nearest f32, ``rounded``, and the errors there in ulps;
    where the truth is below ``normal`` there are none."""
    places = np.flatnonzero(got != rounded)
    got, want, rounded = got[places], want[places], rounded[places]
    _, power = np.frexp(want)
    with np.errstate(all="ignore"):
        distance = np.ldexp(np.abs(got - want), 24 - np.maximum(power, -125))
    distance[~(np.isfinite(got) & np.isfinite(rounded))] = np.inf
    distance[np.isnan(got) & np.isnan(rounded) | (np.abs(want) < normal)] = 0.0
    return places, distance


def floats(first: int, stride: int) -> F32Array:
    """CHUNK floats by their bits: those of ``first``, ``first + stride`` and so on, below 2^32."""
    bits = first + stride * np.arange(CHUNK, dtype=np.uint64)
    return bits[bits < FLOATS].astype(np.uint32).view(np.float32)


@dataclass
class Worst:
    """The largest error so far, and where; that of correct rounding until a larger one is seen."""

    error: float = 0.5
    x: float = math.nan

    def update(self, x: F32Array, found: F64Array) -> None:
        """Take the errors of some more floats."""
        place = int(np.argmax(found)) if found.size else 0
        if found.size and found[place] > self.error:
            self.error, self.x = float(found[place]), float(x[place])


def measure(
    name: str, rows: Sequence[Isa], stride: int, progress: Callable[[float], None]
) -> dict[str, Worst]:
    """The largest error on each row over one float of ``stride``, on all cpus."""
    function = FUNCTIONS[name]
    kernels = {row.name: prepared(row, function.emit, CHUNK) for row in rows}
    worst = {row.name: Worst() for row in rows}

    def chunk(first: int) -> Found:
        x = floats(first, stride)
        padded = np.ones(CHUNK, np.float32)
        padded[: x.size] = x
        with np.errstate(all="ignore"):
            want = function.truth(x.astype(np.float64))
            rounded = want.astype(np.float32)
        found = {}
        for key, kernel in kernels.items():
            places, distances = errors(kernel(padded)[: x.size], want, rounded, function.normal)
            found[key] = (x[places], distances)
        return found

    starts = range(0, FLOATS, CHUNK * stride)
    with ThreadPoolExecutor(available_cpus()) as pool:
        for number, found in enumerate(_in_turn(pool, chunk, starts), 1):
            for key, (x, distances) in found.items():
                worst[key].update(x, distances)
            progress(number / len(starts))
    return worst


def _in_turn(
    pool: ThreadPoolExecutor, work: Callable[[int], Found], starts: Sequence[int]
) -> Iterator[Found]:
    """The results in order; no more work is started than keeps the pool busy."""
    running: deque[Future[Found]] = deque()
    for start in starts:
        running.append(pool.submit(work, start))
        if len(running) > 2 * available_cpus():
            yield running.popleft().result()
    while running:
        yield running.popleft().result()


def main() -> int:
    """Print a line for each function and instruction set; 1 if a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.codegen.ulps", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", help=f"of {' '.join(FUNCTIONS)}; all by default")
    parser.add_argument("--stride", type=int, default=1, help="look at one float of so many")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - FUNCTIONS.keys())
    if unknown:
        parser.error(f"unknown {unknown[0]}: expected some of {', '.join(FUNCTIONS)}")
    torch.set_num_threads(1)
    failed = False
    for name in options.names or FUNCTIONS:
        begin = last = time.monotonic()

        def progress(share: float, name: str = name, begin: float = begin) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last > 10.0:
                last, left = now, (now - begin) * (1.0 / share - 1.0)
                print(f"{name}: {share:.1%}, {left:.0f} s left", file=sys.stderr, flush=True)

        for key, worst in measure(name, runnable_rows(), options.stride, progress).items():
            bound = FUNCTIONS[name].bound
            wrong = not worst.error <= bound
            failed |= wrong
            verdict = f"ABOVE {bound}" if wrong else f"within {bound}"
            print(
                f"{name:10} {key:12} {worst.error:8.3f} ulps at {worst.x!r}, {verdict}", flush=True
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
