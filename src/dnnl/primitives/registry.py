"""Every operation there is, for tools and for whoever looks one up by its kind."""

from __future__ import annotations

from dnnl.primitives.arg_reduction import ArgReductionDesc
from dnnl.primitives.attention import AttentionDesc
from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.concat import ConcatDesc
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.cumulative import CumulativeDesc
from dnnl.primitives.deconvolution import DeconvolutionDesc
from dnnl.primitives.desc import Desc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.exact import ExactDesc
from dnnl.primitives.gather import GatherDesc
from dnnl.primitives.grid_sample import GridSampleDesc
from dnnl.primitives.group_normalization import GroupNormalizationDesc
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.layer_normalization import LayerNormalizationDesc
from dnnl.primitives.lrn import LrnDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.primitives.pooling import PoolingDesc
from dnnl.primitives.prelu import PreluDesc
from dnnl.primitives.reduction import ReductionDesc
from dnnl.primitives.reorder import ReorderDesc
from dnnl.primitives.resampling import ResamplingDesc
from dnnl.primitives.rnn import RnnDesc
from dnnl.primitives.scatter import ScatterDesc
from dnnl.primitives.shuffle import ShuffleDesc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.primitives.sum import SumDesc

_EVERY: tuple[type[Desc], ...] = (
    ArgReductionDesc,
    AttentionDesc,
    BatchNormalizationDesc,
    BinaryDesc,
    ConcatDesc,
    ConvolutionDesc,
    CumulativeDesc,
    DeconvolutionDesc,
    EltwiseDesc,
    ExactDesc,
    GatherDesc,
    GridSampleDesc,
    GroupNormalizationDesc,
    InnerProductDesc,
    LayerNormalizationDesc,
    LrnDesc,
    MatmulDesc,
    PoolingDesc,
    PreluDesc,
    ReductionDesc,
    ReorderDesc,
    ResamplingDesc,
    RnnDesc,
    ScatterDesc,
    ShuffleDesc,
    SoftmaxDesc,
    SumDesc,
)

OPERATIONS = {desc.operation.kind: desc for desc in _EVERY}
"""The description of each kind of operation."""
