"""oneDNN's own convolution of bytes takes weights that our reorder wrote, sums included."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    Compensation,
    ConvolutionDesc,
    Engine,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    Stream,
    Unimplemented,
)
from dnnl.reference.arrays import Array
from dnnl.tools.bench.peers.onednn import OneDnn
from tests.tools.bench.test_peer import needs_peer

REFUSED = "oneDNN wants other weights here:"
SHAPE, TAG = (48, 32, 3, 3), "AcdB32a4b"
CASES = ((Compensation(1), 0), (Compensation(1, 1), 5))
"""What lies behind the weights, and the zero point of the source."""


def reordered(array: np.ndarray, desc: MemoryDesc) -> np.ndarray:
    """The bytes of an array as our reorder writes them."""
    engine = Engine("cpu")
    src, dst = Memory.from_numpy(array), Memory(desc, engine)
    primitive = Primitive(PrimitiveDesc(ReorderDesc(src.desc, desc), engine))
    primitive.execute(Stream(engine), {Arg.SRC: src, Arg.DST: dst})
    return dst.data


def convolve(
    peer: OneDnn, src: np.ndarray, weights: np.ndarray, sums: Compensation, zero_point: int
) -> Array:
    """A 3x3 convolution over there; raises Unimplemented where it does not read the sums."""
    desc = ConvolutionDesc.forward(
        "forward_inference",
        "convolution_direct",
        MemoryDesc(src.shape, "s8", "nhwc"),
        MemoryDesc(SHAPE, "s8", TAG, compensation=sums),
        MemoryDesc((1, 48, 6, 6), "s32", "nhwc"),
        (1, 1),
        (0, 0),
    )
    attr, zero_points = PrimitiveAttr(), Arg.ZERO_POINTS | Arg.SRC
    args = {int(Arg.SRC): reordered(src, desc.src_desc)}
    parameters = {}
    if zero_point:
        attr.set_zero_points(Arg.SRC, 0)
        parameters[zero_points] = MemoryDesc((1,), "s32")
        args[zero_points] = np.array([zero_point], np.int32).view(np.uint8)
    operation = peer.make(desc, attr, 1)
    if not operation.impl_info.startswith("brgconv"):
        raise Unimplemented(f"{operation.impl_info} would take no such weights")
    packed = reordered(weights, desc.weights_desc)
    # Version 3.2 asks for more room than it uses.
    args[Arg.WEIGHTS] = np.concatenate([packed, np.full(2 * packed.size, 0x7F, np.uint8)])
    args[Arg.DST] = np.empty(desc.dst_desc.size, np.uint8)
    operation.use(args, parameters)
    operation.bind()
    return operation.read(Arg.DST)


def compare() -> None:
    """Compare with PyTorch's convolution of the numbers that are meant, in float64."""
    peer, rng = OneDnn(1), np.random.default_rng(1)
    for sums, zero_point in CASES:
        weights = rng.integers(-128, 127, SHAPE, endpoint=True).astype(np.int8)
        src = rng.integers(-128, 127, (1, 32, 8, 8), endpoint=True).astype(np.int8)
        try:
            got = convolve(peer, src, weights, sums, zero_point)
        except Unimplemented as error:
            print(REFUSED, error)
            continue
        meant = torch.from_numpy(src.astype(np.float64) - zero_point)
        want = torch.nn.functional.conv2d(meant, torch.from_numpy(weights.astype(np.float64)))
        np.testing.assert_array_equal(got, want.numpy())


@needs_peer
def test_its_convolution_takes_our_weights() -> None:
    program = "from tests.tools.bench.test_peer_weights import compare; compare()"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if REFUSED in done.stdout:  # its choice depends on the instruction set
        pytest.skip(done.stdout)
