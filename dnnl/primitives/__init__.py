"""The operations: a description says what, a primitive description how, a primitive does it."""

from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.concat import ConcatDesc
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.primitives.pooling import PoolingDesc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.reorder import ReorderDesc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.primitives.sum import SumDesc

__all__ = [
    "BatchNormalizationDesc",
    "BinaryDesc",
    "ConcatDesc",
    "ConvolutionDesc",
    "EltwiseDesc",
    "InnerProductDesc",
    "MatmulDesc",
    "PoolingDesc",
    "Primitive",
    "PrimitiveDesc",
    "ReorderDesc",
    "SoftmaxDesc",
    "SumDesc",
]
