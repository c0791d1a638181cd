"""What a long-running process does, an activity each: a function of a source of chance, which does
a little of it and keeps nothing. `ACTIVITIES` is the table."""

from __future__ import annotations

import pickle
import random
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dnnl import (
    Arg,
    ConvolutionDesc,
    EltwiseDesc,
    Engine,
    Error,
    MatmulDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    ReorderDesc,
    SoftmaxDesc,
    Stream,
)
from dnnl.framework.model import Model, load
from dnnl.primitives.desc import Desc

ENGINE = Engine("cpu")
INFERENCE = "forward_inference"
THREADS = 2
_REQUESTS = 4
Args = dict[int, Memory]


def _random_memory(desc: MemoryDesc, chance: random.Random) -> Memory:
    memory = Memory(desc, ENGINE)
    memory.data[:] = np.frombuffer(chance.randbytes(desc.size), np.uint8) & 0x3F
    return memory


def _arguments(pd: PrimitiveDesc, chance: random.Random) -> Args:
    tensors = pd.desc.tensors
    return {tensor.argument: _random_memory(tensor.desc, chance) for tensor in tensors}


def _open(*dims: int) -> MemoryDesc:
    return MemoryDesc(dims, "f32", "any")


def _tanh(dims: tuple[int, ...]) -> Desc:
    desc = MemoryDesc(dims, "f32")
    return EltwiseDesc.forward(INFERENCE, "eltwise_tanh", desc, desc)


def _softmax(dims: tuple[int, ...]) -> Desc:
    desc = MemoryDesc(dims, "f32")
    return SoftmaxDesc.forward(INFERENCE, "softmax_accurate", desc, desc, 1)


def _reorder(dims: tuple[int, ...]) -> Desc:
    return ReorderDesc(MemoryDesc(dims, "f32", "nchw"), MemoryDesc(dims, "bf16", "nhwc"))


def _matmul(m: int, k: int, n: int) -> Desc:
    return MatmulDesc(_open(m, k), _open(k, n), _open(m, n))


def _convolution(batch: int, src: int, dst: int, size: int) -> Desc:
    return ConvolutionDesc.forward(
        INFERENCE,
        "convolution_direct",
        _open(batch, src, size, size),
        _open(dst, src, 3, 3),
        _open(batch, dst, size, size),
        (1, 1),
        (1, 1),
    )


@cache
def _known() -> list[tuple[Primitive, Args, NDArray[np.uint8]]]:
    """Primitives with their arguments and the destination after an execution."""
    chance, made = random.Random(0), []
    descs = _softmax((64, 300)), _reorder((2, 19, 16, 16)), _matmul(70, 90, 50)
    for desc in (*descs, _convolution(1, 24, 40, 14)):
        pd = PrimitiveDesc(desc, ENGINE)
        primitive, args = Primitive(pd), _arguments(pd, chance)
        primitive.execute(Stream(ENGINE, 1), args)
        made.append((primitive, args, args[Arg.DST].data.copy()))
    return made


def executions(chance: random.Random) -> None:
    """Known primitives on any number of threads, which give the same bits each time."""
    primitive, args, want = chance.choice(_known())
    again = {**args, Arg.DST: Memory(args[Arg.DST].desc, ENGINE)}
    primitive.execute(Stream(ENGINE, chance.randint(1, THREADS)), again)
    assert (again[Arg.DST].data == want).all(), f"{primitive} gave other bits than before"


def shapes(chance: random.Random) -> None:
    """A primitive of sizes that were never there before."""
    m, k, n = (chance.randint(1, 200) for _ in range(3))
    descs = _tanh((m, k)), _softmax((m, 4 * k)), _reorder((2, m, 7, n)), _matmul(m, k, n)
    pd = PrimitiveDesc(chance.choice(descs), ENGINE)
    Primitive(pd).execute(Stream(ENGINE, THREADS), _arguments(pd, chance))


def memories(chance: random.Random) -> None:
    """Memories of any size, and views of them that live longer."""
    tag = chance.choice(["nchw", "nhwc", "nChw16c"])
    dims = [chance.randint(1, 40) for _ in range(4)]
    memory = Memory(MemoryDesc(dims, "f32", tag), ENGINE)
    memory.data[:] = 1
    view = memory.numpy()
    del memory
    assert Memory.from_numpy(view).numpy().shape == tuple(dims)
    pickle.loads(pickle.dumps(MemoryDesc(dims, "f32", tag)))


@cache
def _constants() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "k": (8, 10)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@cache
def _model(*image: int | str) -> Model:
    """A convolution of an image, what follows it in networks, and a product; the batch is left
    open."""
    constants = [numpy_helper.from_array(own, name) for name, own in _constants().items()]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "k"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    src, dst = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 3, *image]), ("y", ["n", 10]))
    )
    graph = helper.make_graph(nodes, "soak", [src], [dst], constants)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        proto = helper.make_model_gen_version(graph, opset_imports=[helper.make_opsetid("", 17)])
        path.write_bytes(proto.SerializeToString())
        return load(path)


def sessions(chance: random.Random) -> None:
    """A model for some batch: compiled, run, dropped, or called, which keeps its last sessions."""
    model, batch = _model(12, 12), chance.randint(1, 64)
    src = np.ones((batch, 3, 12, 12), np.float32)
    if chance.random() < 0.5:
        result: Any = model(src)
    else:
        session = model.compile(ENGINE, batch=batch, num_threads=chance.randint(1, THREADS))
        (result,) = session.run({"x": src}).values()
    assert np.allclose(result.sum(axis=1), 1, atol=1e-5)


def _expected(x: NDArray[np.float32]) -> NDArray[np.float64]:
    """What the model makes of images, by NumPy."""
    own = _constants()
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    sums = np.einsum("nchwyx,ocyx->nohw", windows, own["w"]) + own["b"][:, None, None]
    logits = np.maximum(sums, 0).mean((2, 3)) @ own["k"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(shares / shares.sum(1, keepdims=True))


def requests(chance: random.Random) -> None:
    """Calls of one model from several threads, each with sizes of its own."""
    sizes = [[chance.randint(1, most) for most in (4, 30, 30)] for _ in range(_REQUESTS)]
    rng = np.random.default_rng(chance.getrandbits(32))
    every = [rng.standard_normal((n, 3, h, w), np.float32) for n, h, w in sizes]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        results = list(pool.map(_model("h", "w"), every))
    for x, result in zip(every, results, strict=True):
        np.testing.assert_allclose(result, _expected(x), rtol=1e-4, atol=1e-5)


def threads(chance: random.Random) -> None:
    """Threads that execute, each for the first time, and end."""
    chances = [random.Random(chance.random()) for _ in range(chance.randint(1, 4))]
    with ThreadPoolExecutor(len(chances)) as pool:
        list(pool.map(executions, chances))  # raises what a thread raised


def streams(chance: random.Random) -> None:
    """Engines, streams, events and bound calls that come and go."""
    engine = pickle.loads(pickle.dumps(Engine("cpu")))
    primitive, args, _ = chance.choice(_known())
    stream = Stream(engine, chance.randint(1, THREADS), in_order=chance.random() < 0.5)
    run = primitive.bind(stream, args)
    event = run()
    run([event]).wait()
    stream.wait()


def refusals(chance: random.Random) -> None:
    """Calls that are refused, whose errors hold what was given."""
    size = chance.randint(2, 99)
    src, dst = MemoryDesc((size, 3), "f32"), MemoryDesc((size + 1, 3), "f32")
    with suppress(Error):
        PrimitiveDesc(EltwiseDesc.forward(INFERENCE, "eltwise_relu", src, dst), ENGINE)
    primitive, args, _ = chance.choice(_known())
    with suppress(Error):
        primitive.execute(Stream(ENGINE), {**args, Arg.SRC: Memory(src, ENGINE)})


ACTIVITIES: dict[str, Callable[[random.Random], None]] = {
    "executions": executions,
    "new shapes": shapes,
    "new memories": memories,
    "sessions": sessions,
    "requests": requests,
    "threads": threads,
    "streams": streams,
    "refusals": refusals,
}
