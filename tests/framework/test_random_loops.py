"""Random loops and scans beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.framework.models import model_of, run_peer
from tests.framework.random_loops import WIDTH, random_loop

CALLS = ((7, 4, 3), (0, 4, 1), (12, 15, 2), (1, 1, 5), (12, 15, 2), (15, 15, 8))
"""Iterations, rows that each may read one of, and rows to which more are joined."""


@pytest.mark.parametrize("seed", range(30))
def test_beside_the_peer(seed: int) -> None:
    proto, rng = random_loop(seed), np.random.default_rng(seed)
    model = model_of(proto)
    for count, rows, grown in CALLS:
        feeds = {
            "x": rng.standard_normal((max(rows, count), WIDTH)),
            "u": rng.standard_normal(WIDTH),
            "g0": rng.standard_normal((grown, WIDTH)),
        }
        feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
        if "count" in model.inputs:
            feeds["count"] = np.array(count)
        elif not count:
            continue  # a Scan of no slices stacks what its body declares, which is nothing here
        want = run_peer(proto, feeds)
        if not count:  # nothing is declared of what no iteration has made
            want = {name: array for name, array in want.items() if array.size}
        for threads in (1, 2):
            got = model(feeds, num_threads=threads)
            assert isinstance(got, dict)
            for name, array in want.items():
                assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape), name
                np.testing.assert_allclose(got[name], array, 1e-4, 1e-5, err_msg=name)
