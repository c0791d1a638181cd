"""Calls of public functions with wrong arguments: an error of the library or a TypeError says so,
and no memory is written.

A case is a Python expression over the objects of `_MAKERS`.
"""

from __future__ import annotations

import enum
import resource
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper

import dnnl
from dnnl import config, ops
from dnnl.framework.model import Model, load
from dnnl.framework.session import Session
from dnnl.primitives.desc import Desc
from dnnl.types.post_ops import PostOpEltwise
from tests.fuzz.call_table import WRONG, calls
from tests.fuzz.kind import PASSED, Kind, Outcome, State, failed, raised
from tests.guard import guarded

ENUMS = [
    kind for kind in map(partial(getattr, dnnl), dnnl.__all__) if isinstance(kind, enum.EnumMeta)
]
_MEMORY = 16 << 30  # bytes of a process; the library must say so where it cannot have more
_MOST_ELEMENTS = 2**16  # of a tensor with which is gone on
_DIMS = (2, 3, 4, 5)
_PROTOCOLS: dict[str, type[Exception] | tuple[type[Exception], ...]] = {
    "attr.post_ops.__getitem__": IndexError,
    "mem.__dlpack__": (BufferError, RuntimeError),  # of NumPy, for a stream
    "mem.__array__": ValueError,  # of NumPy, for what is no dtype
    **{f"{kind.__name__}(": ValueError for kind in ENUMS},
}
"""The exceptions that Python's protocols ask for beside those of the library."""


@st.composite
def _cases(draw: st.DrawFn) -> str:
    table = calls()
    name = draw(st.sampled_from(list(table)))
    arguments = dict(table[name])
    if arguments:
        changed = draw(st.lists(st.sampled_from(list(arguments)), min_size=1, max_size=2))
        for key in changed:
            arguments[key] = draw(st.sampled_from(WRONG))
        if not draw(st.integers(0, 7)):
            del arguments[draw(st.sampled_from(list(arguments)))]
    return call_text(name, arguments)


def call_text(name: str, arguments: Mapping[str, str]) -> str:
    """A call of a function of the table, as a case has it."""
    texts = [_argument(key, value) for key, value in arguments.items()]
    return f"{name}({', '.join(texts)})"


def _argument(key: str, value: str) -> str:
    if key == "*":
        return f"*{value}"
    return f"{key}={value}" if key else value


def _run(text: str) -> Outcome:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    return tried(text, _go_on)


def tried(text: str, use: Callable[[Any, World], object]) -> Outcome:
    """What becomes of a case, whose result is used by ``use``; settings stay as they were."""
    world = World()
    kept = {name: world[name].data.copy() for name in ("mem", "result", "small")}
    overrides = dict(config._overrides)
    outcome = PASSED
    try:
        use(eval(text, {}, world), world)
    except dnnl.Error as error:
        outcome = Outcome(State.REFUSED, type(error).__name__)
    except TypeError as error:
        outcome = Outcome(State.REFUSED, type(error).__name__)
    except Exception as error:
        outcome = _documented(text, error)
    finally:
        config._overrides.clear()
        config._overrides.update(overrides)
        config.generation += 1
    if outcome.state is State.REFUSED:
        for name, before in kept.items():
            if not np.array_equal(before, world[name].data):
                return failed("written by a call that was refused", name)
    return outcome


def _documented(text: str, error: Exception) -> Outcome:
    """A failure, unless Python's protocols ask for the exception."""
    expected = next((of for name, of in _PROTOCOLS.items() if text.startswith(name)), ())
    if isinstance(error, expected):
        return Outcome(State.REFUSED, type(error).__name__)
    return raised(error)


class World(dict[str, Any]):
    """The names that a case may use, each made when it is first asked for."""

    def __missing__(self, name: str) -> Any:
        if name not in _MAKERS:
            raise KeyError(name)
        self[name] = made = _MAKERS[name](self)
        return made


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _endless(_: World) -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


_MAKERS: dict[str, Callable[[World], Any]] = {
    "engine": lambda _: dnnl.Engine("cpu"),
    "policy": lambda _: dnnl.SpecialKernels("never"),
    "null": lambda w: dnnl.Engine("null") if dnnl.Engine.count("null") else w["engine"],
    "stream": lambda w: dnnl.Stream(w["engine"], 1),
    "wide_stream": lambda w: dnnl.Stream(w["engine"], 3),
    "null_stream": lambda w: dnnl.Stream(w["null"]),
    "md": lambda _: dnnl.MemoryDesc(_DIMS, "f32", "nchw"),
    "desc": lambda w: dnnl.SoftmaxDesc.forward(
        "forward_inference", "softmax_accurate", w["md"], w["md"], 1
    ),
    "pd": lambda w: dnnl.PrimitiveDesc(w["desc"], w["engine"]),
    "prim": lambda w: dnnl.Primitive(w["pd"]),
    "attr": lambda _: dnnl.PrimitiveAttr(),
    "mem": lambda w: dnnl.Memory(w["md"], w["engine"], guarded(w["md"].size)),
    "buffer": lambda w: dnnl.ShapedBuffer(w["mem"]),
    "result": lambda w: dnnl.Memory(w["md"], w["engine"], guarded(w["md"].size)),
    "args": lambda w: {dnnl.Arg.SRC: w["mem"], dnnl.Arg.DST: w["result"]},
    "event": lambda w: w["prim"].execute(
        w["stream"], {dnnl.Arg.SRC: w["mem"], dnnl.Arg.DST: dnnl.Memory(w["md"], w["engine"])}
    ),
    "matrix": lambda _: SimpleNamespace(
        format="csr",
        shape=(2, 3),
        data=np.ones(2, "f4"),
        indices=np.arange(2),
        indptr=np.array([0, 1, 2]),
    ),
    "sparse": lambda w: dnnl.Memory.from_numpy(np.eye(3, dtype="f4"), "csr", w["engine"]),
    "relu": lambda _: PostOpEltwise(dnnl.Alg.eltwise_relu),
    "small": lambda w: dnnl.Memory(dnnl.MemoryDesc((2, 3), "f32"), w["engine"]),
    "other_type": lambda w: dnnl.Memory(dnnl.MemoryDesc(_DIMS, "s32", "nchw"), w["engine"]),
    "elsewhere": lambda w: dnnl.Memory(w["md"], w["null"]),
    "overlapping": lambda w: dnnl.Memory(w["md"], w["engine"], w["mem"].data),
    "bytes_of_md": lambda w: np.zeros(w["md"].size, np.uint8),
    "array": lambda _: np.zeros(_DIMS, np.float32),
    "read_only": lambda _: _read_only(np.zeros(_DIMS, np.float32)),
    "backward": lambda _: np.zeros(_DIMS, np.float32)[..., ::-1],
    "endless": _endless,
    "path": lambda _: _model_file(),
    "model": lambda w: load(w["path"]),
    "session": lambda w: w["model"].compile(w["engine"], num_threads=1),
    "feeds": lambda w: {"x": w["array"]},
    **{name: lambda _, name=name: getattr(dnnl, name) for name in dnnl.__all__},  # type: ignore[misc]
    "np": lambda _: np,
    "config": lambda _: config,
    "ops": lambda _: ops,
    "load": lambda _: load,
}


def _model_file() -> Path:
    """A file with a small model."""
    if not _files:
        value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, _DIMS) for n in ("x", "y")]
        graph = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])], "g", *zip(value, strict=True)
        )
        opsets = [helper.make_opsetid("", 17)]
        path = Path(tempfile.mkdtemp()) / "model.onnx"
        path.write_bytes(
            helper.make_model_gen_version(graph, opset_imports=opsets).SerializeToString()
        )
        _files.append(path)
    return _files[0]


_files: list[Path] = []


def _go_on(made: Any, world: World) -> None:
    """Use what a call has given: a mistake that was let pass shows later."""
    assert repr(made) is not None
    assert str(made) is not None
    if isinstance(made, dnnl.MemoryDesc) and made.size < _MOST_ELEMENTS:
        assert hash(made) is not None
        made = dnnl.Memory(made, world["engine"])
    if isinstance(made, dnnl.Memory) and made.desc.size < _MOST_ELEMENTS:
        made.numpy()
        made.reorder_to(made.desc)
    if world["attr"].non_default():
        made = world["desc"]
    if isinstance(made, Desc):
        made = dnnl.PrimitiveDesc(made, world["engine"], world["attr"])
    if isinstance(made, dnnl.PrimitiveDesc):
        sizes = [tensor.desc.size for tensor in made.desc.tensors]
        if sum(sizes) < _MOST_ELEMENTS:
            made = dnnl.Primitive(made)
    if isinstance(made, dnnl.Stream):
        world["prim"].execute(made, world["args"])
    if isinstance(made, Model | Session):
        made(world["array"])
    elif callable(made):
        made()


KIND = Kind("call", "public functions with wrong arguments", _cases, _run, __name__, weight=2)
