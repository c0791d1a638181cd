"""The operations: a description says what, a primitive description how, a primitive does it."""

from dnnl.primitives.batch_normalization import BatchNormalizationDesc as BatchNormalizationDesc
from dnnl.primitives.binary import BinaryDesc as BinaryDesc
from dnnl.primitives.concat import ConcatDesc as ConcatDesc
from dnnl.primitives.convolution import ConvolutionDesc as ConvolutionDesc
from dnnl.primitives.desc import Desc as Desc
from dnnl.primitives.eltwise import EltwiseDesc as EltwiseDesc
from dnnl.primitives.inner_product import InnerProductDesc as InnerProductDesc
from dnnl.primitives.layer_normalization import (
    LayerNormalizationDesc as LayerNormalizationDesc,
)
from dnnl.primitives.lrn import LrnDesc as LrnDesc
from dnnl.primitives.matmul import MatmulDesc as MatmulDesc
from dnnl.primitives.pooling import PoolingDesc as PoolingDesc
from dnnl.primitives.primitive import Primitive as Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc as PrimitiveDesc
from dnnl.primitives.reorder import ReorderDesc as ReorderDesc
from dnnl.primitives.softmax import SoftmaxDesc as SoftmaxDesc
from dnnl.primitives.sum import SumDesc as SumDesc

OPERATIONS: dict[str, type[Desc]] = {
    exported.operation.kind: exported
    for exported in tuple(globals().values())
    if isinstance(exported, type) and issubclass(exported, Desc) and exported is not Desc
}
"""The description of each kind of operation, which are those imported above."""
