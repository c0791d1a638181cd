"""The sizes of recurrent networks by their names, and the tensors of cases."""

from __future__ import annotations

from collections.abc import Callable

from dnnl.kernels.rnn.problem import GATES
from dnnl.language.case import INVALID, CaseValues, tensor
from dnnl.primitives.desc import Desc
from dnnl.primitives.rnn_language import types_of
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg, Direction, FormatKind
from dnnl.types.memory_desc import MemoryDesc

SHAPES: dict[str, tuple[str, ...]] = {
    "src_layer_desc": ("T", "N", "SLC"),
    "src_iter_desc": ("L", "D", "N", "SIC"),
    "src_iter_c_desc": ("L", "D", "N", "DHC"),
    "attention_desc": ("T", "N", "A"),
    "lengths_desc": ("N",),
    "weights_layer_desc": ("L", "D", "SLC", "G", "DHC"),
    "weights_iter_desc": ("L", "D", "SIC", "G", "DHC"),
    "weights_peephole_desc": ("L", "D", "P", "DHC"),
    "weights_projection_desc": ("L", "D", "DHC", "DIC"),
    "bias_desc": ("L", "D", "GB", "DHC"),
    "dst_layer_desc": ("T", "N", "DLC"),
    "dst_iter_desc": ("L", "D", "N", "DIC"),
    "dst_iter_c_desc": ("L", "D", "N", "DHC"),
}
SHAPES |= {f"diff_{name}": shape for name, shape in SHAPES.items() if name != "lengths_desc"}
"""The names of the dimensions of each tensor: time steps, batch, layers, directions, gates, and
channels of sources, of cells and of results."""


_MULTIPLIED = ("weights_layer_desc", "weights_iter_desc", "weights_projection_desc")


def counts(alg_kind: Alg, direction: Direction) -> dict[str, int]:
    """The sizes that follow from cells and directions: G gates, GB biases, A attentions
    and P peepholes, D directions, and how many of their results meet in dst_layer, ``joined``."""
    gates = GATES[alg_kind]
    bidirectional = direction in (Direction.bidirectional_concat, Direction.bidirectional_sum)
    return {
        "A": 1,
        "P": 3,
        "G": gates,
        "GB": gates + (alg_kind in (Alg.lbr_gru, Alg.lbr_augru)),
        "D": 1 + bidirectional,
        "joined": 1 + (direction is Direction.bidirectional_concat),
    }


def _dims(case: CaseValues, field_name: str) -> tuple[int, ...]:
    """The dims of a tensor of a case."""
    sizes = case.sizes
    known = counts(Alg[case["alg"].alg], Direction[case["direction"].alg])
    outputs = sizes["dic"] if case["with-projection"] else sizes["dhc"]
    values = known | {
        "T": case["t"] or sizes["t"], "N": sizes["mb"], "L": case["l"] or sizes["l"],
        "SLC": sizes["slc"], "SIC": sizes["sic"], "DHC": sizes["dhc"], "DIC": outputs,
        "DLC": known["joined"] * outputs,
    }  # fmt: skip
    return tuple(values[name] for name in SHAPES[field_name])


def _type(case: CaseValues, field_name: str) -> DataType:
    """The type of a tensor of a case; what it does not name is f32 beside integers."""
    kinds = types_of(case["cfg"])
    src, name = kinds["src_layer"], field_name.removesuffix("_desc")
    if field_name in _MULTIPLIED:
        return kinds["wei_layer"]
    return kinds.get(name, DataType.f32 if src.is_integer else src)


def case_of(field_name: str, number: int) -> Callable[[CaseValues], MemoryDesc]:
    """A tensor of a case, with layout ``number`` of its layouts."""

    def desc(case: CaseValues) -> MemoryDesc:
        made = tensor(_dims(case, field_name), _type(case, field_name), case.part("tag", number))
        spread = not case["trivial-strides"] and field_name in ("src_layer_desc", "dst_layer_desc")
        if not spread or made.format_kind is FormatKind.any:
            return made
        strides = list(made.strides)
        strides[strides.index(max(strides))] += 1
        return MemoryDesc(made.dims, made.data_type, strides)

    return desc


def states(field_name: str) -> Callable[[CaseValues], MemoryDesc]:
    """First or last states of a case, whose rows have a gap behind where strides are not
    trivial."""

    def desc(case: CaseValues) -> MemoryDesc:
        dims = _dims(case, field_name)
        *_, directions, rows, channels = dims
        apart = channels + (not case["trivial-strides"])
        strides = directions * rows * apart, rows * apart, apart, 1
        return MemoryDesc(dims, _type(case, field_name), strides)

    return desc


def row_major(
    field_name: str, data_type: str = "", option: str = ""
) -> Callable[[CaseValues], MemoryDesc | None]:
    """A tensor of a case whose layouts say nothing of it; with an ``option`` it may be absent."""

    def desc(case: CaseValues) -> MemoryDesc | None:
        if option and not case[option]:
            return None
        return MemoryDesc(_dims(case, field_name), data_type or _type(case, field_name))

    return desc


def quantize(case: CaseValues, desc: Desc, attr: PrimitiveAttr) -> None:
    """The quantization of a case of integers: states from -1 to 1, and weights as far as results
    of so many terms are of one size, in the whole range of their types."""
    src = desc.desc_of(Arg.SRC_LAYER)
    if src.data_type not in (DataType.u8, DataType.s8):
        return
    attr.set_rnn_data_qparams(127, 128 if src.data_type is DataType.u8 else 0)
    weights = {tensor.argument: tensor.desc for tensor in desc.tensors}
    *_, inputs, gates, channels = weights[Arg.WEIGHTS_LAYER].dims
    attr.set_rnn_weights_qparams(*_scales(case["scaling"], 24, inputs, gates * channels))
    projection = weights.get(Arg.WEIGHTS_PROJECTION)
    if projection is not None:
        *_, units, outputs = projection.dims
        found = _scales(case["scaling-proj"], 8, units, outputs)
        attr.set_rnn_weights_projection_qparams(*found)


def _scales(scaling: object, mask: int, inputs: int, columns: int) -> tuple[int, list[float]]:
    """The mask and the scales, of which neighbours differ."""
    largest = 127 * max(1, inputs) ** 0.5
    if scaling == "common":
        return 0, [largest]
    return mask, [largest * (1 + column % 4) / 2 for column in range(columns)]


def invalid(case: CaseValues) -> str | None:
    """Peepholes and projections are those of LSTM cells; cells have the sizes that they need."""
    lstm = case["alg"] == "VANILLA_LSTM"
    sizes = case.sizes
    if not lstm and (case["with-peephole"] or case["with-projection"]):
        return INVALID
    if not case["with-projection"] and sizes["dic"] != sizes["dhc"]:
        return INVALID
    return None
