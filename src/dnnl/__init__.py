"""Deep-learning primitives whose kernels Python writes for the exact problem.

A name is imported when it is first asked for, with what it needs and no more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dnnl import config as config
from dnnl import lazy
from dnnl.runtime import reorders

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any

    import torch as pytorch

    from dnnl.errors import Error as Error
    from dnnl.errors import InvalidArguments as InvalidArguments
    from dnnl.errors import OutOfMemory as OutOfMemory
    from dnnl.errors import Unimplemented as Unimplemented
    from dnnl.framework.model import Model
    from dnnl.framework.special import SpecialKernels as SpecialKernels
    from dnnl.primitives.arg_reduction import ArgReductionDesc as ArgReductionDesc
    from dnnl.primitives.attention import AttentionDesc as AttentionDesc
    from dnnl.primitives.batch_normalization import BatchNormalizationDesc as BatchNormalizationDesc
    from dnnl.primitives.binary import BinaryDesc as BinaryDesc
    from dnnl.primitives.concat import ConcatDesc as ConcatDesc
    from dnnl.primitives.convolution import ConvolutionDesc as ConvolutionDesc
    from dnnl.primitives.cumulative import CumulativeDesc as CumulativeDesc
    from dnnl.primitives.deconvolution import DeconvolutionDesc as DeconvolutionDesc
    from dnnl.primitives.eltwise import EltwiseDesc as EltwiseDesc
    from dnnl.primitives.exact import ExactDesc as ExactDesc
    from dnnl.primitives.gather import GatherDesc as GatherDesc
    from dnnl.primitives.grid_sample import GridSampleDesc as GridSampleDesc
    from dnnl.primitives.group_normalization import GroupNormalizationDesc as GroupNormalizationDesc
    from dnnl.primitives.inner_product import InnerProductDesc as InnerProductDesc
    from dnnl.primitives.layer_normalization import LayerNormalizationDesc as LayerNormalizationDesc
    from dnnl.primitives.lrn import LrnDesc as LrnDesc
    from dnnl.primitives.matmul import MatmulDesc as MatmulDesc
    from dnnl.primitives.pooling import PoolingDesc as PoolingDesc
    from dnnl.primitives.prelu import PreluDesc as PreluDesc
    from dnnl.primitives.primitive import Primitive as Primitive
    from dnnl.primitives.primitive_desc import PrimitiveDesc as PrimitiveDesc
    from dnnl.primitives.reduction import ReductionDesc as ReductionDesc
    from dnnl.primitives.reorder import ReorderDesc as ReorderDesc
    from dnnl.primitives.reorder_memories import reorder as reorder
    from dnnl.primitives.resampling import ResamplingDesc as ResamplingDesc
    from dnnl.primitives.rnn import RnnDesc as RnnDesc
    from dnnl.primitives.rnn_cells import AugruDesc as AugruDesc
    from dnnl.primitives.rnn_cells import GruDesc as GruDesc
    from dnnl.primitives.rnn_cells import LbrAugruDesc as LbrAugruDesc
    from dnnl.primitives.rnn_cells import LbrGruDesc as LbrGruDesc
    from dnnl.primitives.rnn_cells import LstmDesc as LstmDesc
    from dnnl.primitives.rnn_cells import VanillaRnnDesc as VanillaRnnDesc
    from dnnl.primitives.scatter import ScatterDesc as ScatterDesc
    from dnnl.primitives.shuffle import ShuffleDesc as ShuffleDesc
    from dnnl.primitives.softmax import LogSoftmaxDesc as LogSoftmaxDesc
    from dnnl.primitives.softmax import SoftmaxDesc as SoftmaxDesc
    from dnnl.primitives.softmax import SoftmaxV1Desc as SoftmaxV1Desc
    from dnnl.primitives.sum import SumDesc as SumDesc
    from dnnl.runtime.engine import Engine as Engine
    from dnnl.runtime.event import Event as Event
    from dnnl.runtime.memory import Memory as Memory
    from dnnl.runtime.shaped_buffer import ShapedBuffer as ShapedBuffer
    from dnnl.runtime.stream import Stream as Stream
    from dnnl.runtime.threads import get_num_threads as get_num_threads
    from dnnl.runtime.threads import set_num_threads as set_num_threads
    from dnnl.torch.explain import Explanation
    from dnnl.types.arg import Arg as Arg
    from dnnl.types.attr import PrimitiveAttr as PrimitiveAttr
    from dnnl.types.cell_functions import CellFunctions as CellFunctions
    from dnnl.types.compensation import Compensation as Compensation
    from dnnl.types.dtype import DataType as DataType
    from dnnl.types.interpolation import Interpolation as Interpolation
    from dnnl.types.kinds import RUNTIME_DIM as RUNTIME_DIM
    from dnnl.types.kinds import Alg as Alg
    from dnnl.types.kinds import Direction as Direction
    from dnnl.types.kinds import FpmathMode as FpmathMode
    from dnnl.types.kinds import NormFlags as NormFlags
    from dnnl.types.kinds import PropKind as PropKind
    from dnnl.types.kinds import RnnFlags as RnnFlags
    from dnnl.types.kinds import ScratchpadMode as ScratchpadMode
    from dnnl.types.memory_desc import MemoryDesc as MemoryDesc
    from dnnl.types.runtime_dim import RuntimeDim as RuntimeDim
    from dnnl.types.tag import FormatTag as FormatTag
    from dnnl.types.taps import Taps as Taps

__version__ = "0.2.0"

_HOMES = {
    "Error": "errors",
    "InvalidArguments": "errors",
    "OutOfMemory": "errors",
    "Unimplemented": "errors",
    "ArgReductionDesc": "primitives.arg_reduction",
    "AugruDesc": "primitives.rnn_cells",
    "AttentionDesc": "primitives.attention",
    "BatchNormalizationDesc": "primitives.batch_normalization",
    "BinaryDesc": "primitives.binary",
    "ConcatDesc": "primitives.concat",
    "ConvolutionDesc": "primitives.convolution",
    "CumulativeDesc": "primitives.cumulative",
    "DeconvolutionDesc": "primitives.deconvolution",
    "EltwiseDesc": "primitives.eltwise",
    "ExactDesc": "primitives.exact",
    "GatherDesc": "primitives.gather",
    "GridSampleDesc": "primitives.grid_sample",
    "GroupNormalizationDesc": "primitives.group_normalization",
    "GruDesc": "primitives.rnn_cells",
    "InnerProductDesc": "primitives.inner_product",
    "LayerNormalizationDesc": "primitives.layer_normalization",
    "LbrAugruDesc": "primitives.rnn_cells",
    "LbrGruDesc": "primitives.rnn_cells",
    "LogSoftmaxDesc": "primitives.softmax",
    "LrnDesc": "primitives.lrn",
    "LstmDesc": "primitives.rnn_cells",
    "MatmulDesc": "primitives.matmul",
    "PoolingDesc": "primitives.pooling",
    "PreluDesc": "primitives.prelu",
    "Primitive": "primitives.primitive",
    "PrimitiveDesc": "primitives.primitive_desc",
    "ReductionDesc": "primitives.reduction",
    "ReorderDesc": "primitives.reorder",
    "reorder": "primitives.reorder_memories",
    "ResamplingDesc": "primitives.resampling",
    "RnnDesc": "primitives.rnn",
    "RnnFlags": "types.kinds",
    "ScatterDesc": "primitives.scatter",
    "ShuffleDesc": "primitives.shuffle",
    "SoftmaxDesc": "primitives.softmax",
    "SoftmaxV1Desc": "primitives.softmax",
    "SumDesc": "primitives.sum",
    "VanillaRnnDesc": "primitives.rnn_cells",
    "Engine": "runtime.engine",
    "Event": "runtime.event",
    "Memory": "runtime.memory",
    "ShapedBuffer": "runtime.shaped_buffer",
    "SpecialKernels": "framework.special",
    "Stream": "runtime.stream",
    "get_num_threads": "runtime.threads",
    "set_num_threads": "runtime.threads",
    "Arg": "types.arg",
    "PrimitiveAttr": "types.attr",
    "CellFunctions": "types.cell_functions",
    "Compensation": "types.compensation",
    "DataType": "types.dtype",
    "Interpolation": "types.interpolation",
    "RUNTIME_DIM": "types.kinds",
    "Alg": "types.kinds",
    "Direction": "types.kinds",
    "FpmathMode": "types.kinds",
    "NormFlags": "types.kinds",
    "PropKind": "types.kinds",
    "ScratchpadMode": "types.kinds",
    "MemoryDesc": "types.memory_desc",
    "RuntimeDim": "types.runtime_dim",
    "FormatTag": "types.tag",
    "Taps": "types.taps",
}
__all__ = ["explain_graph", "from_torch", "load", *_HOMES]  # noqa: PLE0604 - the table above has them

__getattr__, __dir__ = lazy.names(__name__, _HOMES)
reorders.provide(f"{__name__}.primitives.reorder_memories", "reorder")


def load(path: str | os.PathLike[str], *, compile: bool = True) -> Model:
    """Return the model in a file: in that of `Model.save`, or in an ONNX file, which needs the
    extra ``onnx``.

    A saved model runs the kernels of its file, for the sizes that these serve; others are compiled.
    Without ``compile`` they are refused with Unimplemented, which says what the file serves.

    Raises ModelError, with the reason, for a file that is no usable model, and Unimplemented for
    operators or operator sets that are not known, and for a saved model whose kernels need features
    that this machine lacks. What depends on sizes, or is refused of an operator that is known,
    shows when the model is compiled.
    """
    with lazy.IMPORTING:
        # The bytes of a saved model are checked while what runs it is imported.
        file = import_module(f"{__name__}.framework.saved_file").opened(path)
        models = import_module(f"{__name__}.framework.model")
    model: Model = models.loaded(path, file, compile)
    return model


def from_torch(
    program: pytorch.nn.Module | pytorch.export.ExportedProgram,
    example: Any = None,
    *,
    dynamic_shapes: Any = None,
) -> Model:
    """Return the model of a module of PyTorch, or of a program that `torch.export.export` made;
    needs the extra ``torch``.

    A module is exported as it is, without gradients, on ``example``: a tensor, a tuple of the
    positional arguments, or a dict of those by name. ``dynamic_shapes`` is that of
    `torch.export.export`: it says which sizes of a module stay open. Weights are constants of the
    model.

    Inputs have the names of the arguments, outputs those of the exported program.

    Raises Unimplemented for operators that models do not have, all by name, and for a module that
    changes its buffers, which `eval` prevents; InvalidArguments for what is neither module nor
    program, for a module without an example, and for ``dynamic_shapes`` of a program. Errors of
    `torch.export.export` are PyTorch's.
    """
    with lazy.IMPORTING:
        programs = import_module(f"{__name__}.torch.programs")
    model: Model = programs.from_torch(program, example, dynamic_shapes)
    return model


def explain_graph(net: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Explanation:
    """Compile and call ``net``, and return which operators dnnl computes and which are left to
    PyTorch, with the reasons; needs the extra ``torch``.

    Operators of the backward graph count as well where gradients are switched on and a parameter or
    an argument requires one.

    ``net`` is a module or a function that `torch.compile` takes, the arguments are those of the
    call. ``print(dnnl.explain_graph(net, x))`` shows a line for each operator that is PyTorch's.
    """
    with lazy.IMPORTING:
        explain = import_module(f"{__name__}.torch.explain")
    found: Explanation = explain.explained(net, arguments, keywords)
    return found
