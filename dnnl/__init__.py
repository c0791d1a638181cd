"""Deep-learning primitives whose kernels Python writes for the exact problem."""

from dnnl.errors import Error, InvalidArguments, OutOfMemory, Unimplemented
from dnnl.primitives import (
    BatchNormalizationDesc,
    BinaryDesc,
    ConcatDesc,
    ConvolutionDesc,
    EltwiseDesc,
    InnerProductDesc,
    LayerNormalizationDesc,
    LrnDesc,
    MatmulDesc,
    PoolingDesc,
    Primitive,
    PrimitiveDesc,
    ReorderDesc,
    SoftmaxDesc,
    SumDesc,
)
from dnnl.runtime.engine import Engine
from dnnl.runtime.event import Event
from dnnl.runtime.memory import Memory
from dnnl.runtime.stream import Stream
from dnnl.runtime.threads import get_num_threads, set_num_threads
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.compensation import Compensation
from dnnl.types.dtype import DataType
from dnnl.types.kinds import (
    RUNTIME_DIM,
    Alg,
    Direction,
    FpmathMode,
    NormFlags,
    PropKind,
    ScratchpadMode,
)
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

__version__ = "0.1.0"

__all__ = [
    "RUNTIME_DIM",
    "Alg",
    "Arg",
    "BatchNormalizationDesc",
    "BinaryDesc",
    "Compensation",
    "ConcatDesc",
    "ConvolutionDesc",
    "DataType",
    "Direction",
    "EltwiseDesc",
    "Engine",
    "Error",
    "Event",
    "FormatTag",
    "FpmathMode",
    "InnerProductDesc",
    "InvalidArguments",
    "LayerNormalizationDesc",
    "LrnDesc",
    "MatmulDesc",
    "Memory",
    "MemoryDesc",
    "NormFlags",
    "OutOfMemory",
    "PoolingDesc",
    "Primitive",
    "PrimitiveAttr",
    "PrimitiveDesc",
    "PropKind",
    "ReorderDesc",
    "ScratchpadMode",
    "SoftmaxDesc",
    "Stream",
    "SumDesc",
    "Unimplemented",
    "get_num_threads",
    "set_num_threads",
]
