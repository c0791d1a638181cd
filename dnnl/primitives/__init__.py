"""The operations: a description says what, a primitive description how, a primitive does it."""

from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.reorder import ReorderDesc

__all__ = [
    "ConvolutionDesc",
    "EltwiseDesc",
    "InnerProductDesc",
    "MatmulDesc",
    "Primitive",
    "PrimitiveDesc",
    "ReorderDesc",
]
