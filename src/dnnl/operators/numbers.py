"""Which sources of each operator a plan has to know as numbers, and what runs between plans.

Loading a saved model imports this module, so it imports nothing that plans or compiles.
"""

from __future__ import annotations

from collections.abc import Mapping

from dnnl.graph.graph import Node
from dnnl.graph.training import DOMAIN, RESIZE, RESIZE_DATA
from dnnl.operators.microsoft import MICROSOFT

_REDUCED = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
REDUCTIONS = tuple(f"Reduce{name}" for name in _REDUCED)

NUMBERS: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Clip": (1, 2),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (2,),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "If": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **dict.fromkeys(REDUCTIONS, (1,)),
    f"{MICROSOFT}.GroupQueryAttention": (6,),
    f"{DOMAIN}.{RESIZE}": (1,),
    f"{DOMAIN}.{RESIZE_DATA}": (1,),
}
"""By operator, the indices of the inputs that must be numbers for a plan: sizes, indices, axes."""

FOLDED = frozenset(
    {"BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow", "MelWeightMatrix"}
)
"""Operators that are computed while planning, or are refused."""

HAS_ELEMENT = "OptionalHasElement"
SIZES = frozenset({HAS_ELEMENT, "Shape", "Size"})
"""Operators whose result follows from the shape of their source, or from its presence."""

UNCHANGED = frozenset({"Identity", "Optional", "OptionalGetElement"})
"""Operators whose result is their source, a tensor or a list: optional values are always given."""

LIKE = "CastLike"
"""The operator that reads only the type of its second source."""

CONTROL = frozenset({"Loop", "Scan", "SequenceMap"})
"""Operators that run a graph of their own, any number of times."""

SELECTIONS = frozenset({"Compress", "NonMaxSuppression", "NonZero", "TopK", "Unique"})
"""Operators whose results have sizes that contents decide."""

ON_ARRAYS = frozenset({"Det", "MaxRoiPool"})
"""Rare operators that NumPy computes between parts."""

SEQUENCES = frozenset(
    {"ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase"}
    | {"SequenceInsert", "SequenceLength", "SplitToSequence"}
)
"""Operators on lists of tensors."""

_AS_STEPS = frozenset(
    {"AffineGrid", "Attention", "AveragePool", "Col2Im", "DFT", "DeformConv", "GridSample"}
    | {"Hardmax", "LogSoftmax", "LpNormalization", "LpPool", "MaxPool", "MaxUnpool"}
    | {"MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "RoiAlign", "STFT", "Softmax"}
    | {"SoftmaxCrossEntropyLoss"}
)
"""Operators that no model has on constants, and that ONNX's own implementation, which folds, gives
other types, other results or errors for."""

_MAKE_SEQUENCES = frozenset(
    {"SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceMap"}
    | {"SplitToSequence"}
)


def number_places(node: Node) -> tuple[int, ...]:
    """The places of the sources that a plan has to know as numbers."""
    return NUMBERS.get(f"{node.domain}.{node.op}" if node.domain else node.op, ())


def deciding(node: Node) -> tuple[str, ...]:
    """The sources whose contents, not only shapes or types, the results depend on."""
    if node.op in SIZES:
        return ()
    return node.inputs[:1] if node.op == LIKE and not node.domain else node.reads


def runs_between(node: Node) -> bool:
    """Whether an operator is computed between plans, unless it needs no contents of inputs."""
    return not node.domain and node.op in (CONTROL | ON_ARRAYS | SELECTIONS | SEQUENCES)


def is_folded(node: Node) -> bool:
    """Whether an operator on constants becomes a constant: lists and graphs do not, nor what only
    steps compute, nor slices that are to stay in their order, of which ONNX's own implementation
    gives too few."""
    if node.op == "Unique" and "axis" in node.attrs and not node.attrs.get("sorted", 1):
        return False
    return not node.domain and node.op not in (CONTROL | SEQUENCES | _AS_STEPS)


def makes_sequence(node: Node) -> bool:
    """Whether all results of an operator are lists of tensors."""
    return not node.domain and node.op in _MAKE_SEQUENCES
