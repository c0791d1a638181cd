"""Recurrent networks: one description for all cells, and who makes it of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from dnnl.codegen.ir.kernel import Reason, Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import multiply
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.kernels.rnn import forward as kernel
from dnnl.kernels.rnn.problem import GATES, Operands, RnnConf
from dnnl.primitives.checks import spelled_size
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, refuse_attr
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Member, Real
from dnnl.primitives.rnn_cases import SHAPES, case_of, counts, invalid, quantize, row_major
from dnnl.primitives.rnn_language import DRIVER
from dnnl.reference.rnn import reversed_of
from dnnl.reference.rnn_check import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM, Alg, Direction, FormatKind, PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known

_ACTIVATIONS = (Alg.eltwise_relu, Alg.eltwise_tanh, Alg.eltwise_logistic)
_ATTENTIVE = (Alg.vanilla_augru, Alg.lbr_augru)
_TYPES = (DataType.f32, DataType.bf16, DataType.f16)
_WEIGHTS = ("weights_layer_desc", "weights_iter_desc", "weights_projection_desc")
_INTEGERS = (DataType.u8, DataType.s8)
_STATES = ("src_iter_desc", "dst_layer_desc", "dst_iter_desc")
_MULTIPLIED = ("src_layer_desc", *_WEIGHTS)


@dataclass(frozen=True)
class RnnDesc(Desc):
    """A recurrent network: cells of a kind ``alg_kind`` over T steps, in L layers and D directions.

    `VanillaRnnDesc`, `LstmDesc`, `GruDesc`, `LbrGruDesc`, `AugruDesc` and `LbrAugruDesc` make it,
    and say what a cell computes. The tensors are

        src_layer (T, N, SLC)     src_iter (L, D, N, SIC)   src_iter_c (L, D, N, DHC)
        dst_layer (T, N, DLC)     dst_iter (L, D, N, DIC)   dst_iter_c (L, D, N, DHC)
        weights_layer (L, D, SLC, G, DHC)   weights_iter (L, D, SIC, G, DHC)
        weights_peephole (L, D, 3, DHC)     weights_projection (L, D, DHC, DIC)
        bias (L, D, GB, DHC)    attention (T, N, 1)    lengths (N)

    with G gates, and GB = G but for cells that are linear before the reset, which have one more.
    D is 2 where the direction is bidirectional: both go through all layers; behind the last one
    their results are joined (DLC = 2 DIC) or added up. DIC is DHC without a projection; layers
    above the first read what the one below gives (SLC = DIC), steps the states before (SIC = DIC).

    First states that are absent are zeros, as is a bias; last ones may be absent too. A row has as
    many steps as the s32 ``lengths`` say: those behind leave its states as they are and give zeros.
    ``activation`` is that of vanilla cells, ``alpha`` the slope of its relu below 0.

    Arguments SRC_LAYER, SRC_ITER, SRC_ITER_C, AUGRU_ATTENTION, SEQUENCE_LENGTHS, WEIGHTS_LAYER,
    WEIGHTS_ITER, WEIGHTS_PEEPHOLE, WEIGHTS_PROJECTION, BIAS, DST_LAYER, DST_ITER, DST_ITER_C. All
    but the lengths may be f32, bf16 or f16. Gates, and the states c, are f32 from step to step; so
    are the states h, unless src_layer and weights are bf16 and the processor multiplies pairs of
    it: then they are bf16. Or src_layer is u8 or s8 and weights are s8, which stand for other
    numbers by the attribute's ``rnn_qparams``; src_iter, dst_layer and dst_iter may be of the type
    of src_layer then, and h is an integer from step to step.

    Layouts may be ``any``: that of weights has blocks of units, everything else is row-major.
    Channels must be contiguous. Sizes may be RUNTIME_DIM: one kernel serves any T and N, other ones
    that are open have a kernel for the sizes of each execution.
    """

    single = ("T", "N")

    prop_kind: PropKind
    alg_kind: Alg
    activation: Alg | None
    direction: Direction
    src_layer_desc: MemoryDesc
    src_iter_desc: MemoryDesc
    src_iter_c_desc: MemoryDesc
    attention_desc: MemoryDesc
    weights_layer_desc: MemoryDesc
    weights_iter_desc: MemoryDesc
    weights_peephole_desc: MemoryDesc
    weights_projection_desc: MemoryDesc
    bias_desc: MemoryDesc
    dst_layer_desc: MemoryDesc
    dst_iter_desc: MemoryDesc
    dst_iter_c_desc: MemoryDesc
    lengths_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    alpha: float = 0.0

    def check_dims(self) -> None:
        """Each tensor has as many dimensions as it has to."""
        for name, desc in self._present():
            names = SHAPES[name]
            if desc.ndims != len(names):
                rule = f"expected {len(names)} dimensions, ({', '.join(names)})"
                raise InvalidArguments(name, desc.dims, rule)

    def check(self) -> None:
        """Sizes of one name are one size, and gates, directions and states fit the cells."""
        if (self.activation is None) == (self.alg_kind is Alg.vanilla_rnn):
            rule = "vanilla cells have an activation, and no others"
            raise InvalidArguments("activation", self.activation, rule)
        if self.lengths_desc.data_type not in (DataType.undef, DataType.s32):
            rule = "the lengths of sequences are s32"
            raise InvalidArguments("lengths_desc", str(self.lengths_desc), rule)
        given = {
            key: (size, f"that of {self.direction if key == 'D' else self.alg_kind}")
            for key, size in self._counts.items()
        }
        for name, desc in self._present():
            for size, key in zip(desc.dims, SHAPES[name], strict=True):
                if size == RUNTIME_DIM:
                    continue
                wanted, why = given.setdefault(key, (size, f"as in {name}"))
                if size != wanted:
                    shape = ", ".join(SHAPES[name])
                    rule = f"expected ({shape}) with {key} = {wanted}, {why}"
                    raise InvalidArguments(name, desc.dims, rule)
        self._check_relations({key: size for key, (size, _) in given.items()})

    def _check_relations(self, sizes: dict[str, int]) -> None:
        """Raise unless results fit what reads them."""
        if self.weights_projection_desc.is_zero:
            self._check_equal(sizes, "DIC", "DHC", "dst_iter_desc", "there is no projection")
        sizes.setdefault("DIC", sizes.get("DHC", RUNTIME_DIM))
        if sizes.get("L", 1) > 1:
            rule = "a layer reads what the one below gives"
            self._check_equal(sizes, "SLC", "DIC", "weights_layer_desc", rule)
        if sizes.get("SIC") != sizes["DIC"] and sizes.get("T", 1) > 1:
            rule = "a step reads the states of the one before"
            self._check_equal(sizes, "SIC", "DIC", "weights_iter_desc", rule)
        if self.alg_kind not in (Alg.vanilla_rnn, Alg.vanilla_lstm):
            rule = "a GRU mixes old states and new ones"
            self._check_equal(sizes, "SIC", "DHC", "weights_iter_desc", rule)
        joined, own = sizes["joined"], (sizes.get("DLC", RUNTIME_DIM), sizes["DIC"])
        if RUNTIME_DIM not in own and own[0] != joined * own[1]:
            rule = f"expected {joined * own[1]} channels, {joined} times DIC"
            raise InvalidArguments("dst_layer_desc", self.dst_layer_desc.dims, rule)

    def _check_equal(
        self, sizes: Mapping[str, int], key: str, other: str, name: str, why: str
    ) -> None:
        first, second = sizes.get(key, RUNTIME_DIM), sizes.get(other, RUNTIME_DIM)
        if RUNTIME_DIM not in (first, second) and first != second:
            rule = f"expected {key} = {other} = {second}: {why}"
            raise InvalidArguments(name, getattr(self, name).dims, rule)

    def check_attr(self, attr: PrimitiveAttr) -> None:
        """There is one scale for all integer weights, or one for each known column."""
        if not self.is_integer:
            return
        *_, gates, channels = self.weights_layer_desc.dims
        qparams, outputs = attr.rnn_qparams, self.outputs_of_cells
        for name, scales, columns in (
            ("rnn_weights_qparams", qparams.weights, (gates, channels)),
            ("rnn_weights_projection_qparams", qparams.projection, (outputs,)),
        ):
            if scales.mask and RUNTIME_DIM in columns:
                raise Unimplemented(f"{name}: scales of each column go with known channels")
            scales.check(name, prod(columns))

    def _present(self) -> Iterator[tuple[str, MemoryDesc]]:
        """The tensors that are there, by their fields."""
        for name, desc in self._given():
            if not desc.is_zero:
                yield name, desc

    def size_name(self, argument: int, dim: int, letter: str) -> str:
        """The name of the dimension."""
        return SHAPES[self.operation.role(argument).field][dim]

    def other_sizes(self) -> Sequence[Mapping[str, int]]:
        """Few rows, which do not copy weights that are row-major."""
        return ({"T": 5, "N": 3},)

    def complete_typical(self, dims: dict[int, list[int]]) -> None:
        """Gates and directions are those of the cells, and channels agree."""
        known = dict(self._known_sizes())
        channels = known.get("DHC", _TYPICAL)
        outputs = known.get("DIC", channels)
        usual = self._counts | {
            "L": 1, "SLC": outputs, "SIC": outputs, "DHC": channels, "DIC": outputs,
            "DLC": self._counts["joined"] * outputs,
        }  # fmt: skip
        for argument, own in dims.items():
            names = SHAPES[self.operation.role(argument).field]
            own[:] = [
                size if name in self.single else known.get(name, usual[name])
                for name, size in zip(names, own, strict=True)
            ]

    def _known_sizes(self) -> Iterator[tuple[str, int]]:
        for name, desc in self._present():
            for size, key in zip(desc.dims, SHAPES[name], strict=True):
                if size != RUNTIME_DIM:
                    yield key, size

    @property
    def _counts(self) -> dict[str, int]:
        return counts(self.alg_kind, self.direction)

    @property
    def is_integer(self) -> bool:
        """Whether inputs are integers, and stand for other numbers."""
        return self.src_layer_desc.data_type in _INTEGERS

    @property
    def outputs_of_cells(self) -> int:
        """DIC: the channels of the states."""
        projection = self.weights_projection_desc
        return projection.dims[3] if not projection.is_zero else self.weights_layer_desc.dims[4]

    @property
    def problem(self) -> str:
        """The sizes as ``l1t10mb32sic64slc64dhc64dic64``."""
        layers, _, inputs, _, channels = self.weights_layer_desc.dims
        steps, rows = self.src_layer_desc.dims[:2]
        states, outputs = self.weights_iter_desc.dims[2], self.outputs_of_cells
        sizes = {
            "l": layers, "t": steps, "mb": rows, "sic": states, "slc": inputs, "dhc": channels,
            "dic": outputs,
        }  # fmt: skip
        return "".join(f"{key}{spelled_size(size)}" for key, size in sizes.items())


_TYPICAL = 64


def _plan(desc: RnnDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    integers = desc.is_integer
    refusal = refuse_attr(attr, *["rnn_qparams"] * integers) or _refused(desc, isa)
    if refusal is not None:
        return refusal
    for operands in _operands(desc, isa):
        found = _planned(desc, isa, operands, attr)
        if isinstance(found, Plan):
            return found
    return found


def _operands(desc: RnnDesc, isa: Isa) -> Iterator[Operands]:
    """What products may multiply, best first: integers; bf16 where inputs and weights are, and the
    target has instructions for it; and f32."""
    if desc.is_integer:
        found = multiply(isa, DataType.u8, DataType.s8, tiled=True)
        yield Operands(DataType.u8, DataType.s8, found is not None and found.tiles is not None)
        return
    given = dict(desc._present())
    kinds = {own.data_type for name, own in given.items() if name in _MULTIPLIED}
    bf16 = DataType.bf16
    dot = multiply(isa, bf16, bf16, tiled=True)
    if kinds == {bf16} and dot is not None and dot.group > 1:
        yield Operands(bf16, bf16, unit=dot.tiles is not None)
    yield Operands()


def _planned(desc: RnnDesc, isa: Isa, operands: Operands, attr: PrimitiveAttr) -> Plan | Refusal:
    weights = {
        name: _blocked(own, isa.lanes, operands)
        for name, own in desc._present()
        if name in _WEIGHTS
    }
    desc = desc.laid_out(**weights)
    for name, own in desc._present():
        if not _contiguous(own, operands.tag(own.ndims, isa.lanes) if name in weights else ""):
            hint = f", or {operands.tag(own.ndims, isa.lanes)}" if name in weights else ""
            return Refusal(Reason.LAYOUT, f"{name} = {own}; channels are contiguous{hint}")
    conf = _conf(desc, isa, operands, attr)
    unpacked = any(map(conf.packs, weights.values()))
    if operands.data is DataType.bf16 and unpacked and not conf.many_rows:
        return Refusal(Reason.LAYOUT, "few rows by weights that are not in blocks")
    return Plan(desc, (), Recipe(conf, isa, kernel.build), conf.scratchpad)


def _blocked(desc: MemoryDesc, lanes: int, operands: Operands) -> MemoryDesc:
    """Weights that are open in blocks of units."""
    is_open = desc.format_kind is FormatKind.any
    return desc.with_tag(operands.tag(desc.ndims, lanes)) if is_open else desc


def _contiguous(desc: MemoryDesc, tag: str) -> bool:
    """Whether channels are, or weights are in the blocks of a tag."""
    if desc.inner_blocks:
        return bool(tag) and desc.inner_blocks == desc.with_tag(tag).inner_blocks
    return desc.ndims == 1 or desc.dims[-1] == 1 or desc.strides[-1] == 1


def _refused(desc: RnnDesc, isa: Isa) -> Refusal | None:
    """Why there is no kernel, but for layouts."""
    if desc.propagation is PropKind.forward_training:
        return Refusal(Reason.PROP_KIND, "forward_training: it leaves nothing for a gradient yet")
    if isa.device is not None:
        return Refusal(Reason.ISA, f"{isa.name} repeats no phases")
    given = dict(desc._present())
    for name, own in given.items():
        for size, key in zip(own.dims, SHAPES[name], strict=True):
            if key not in desc.single and not is_known(size):
                return Refusal(Reason.RUNTIME_DIM, f"{key} of {name}")
    for name, own in given.items():
        if own.data_type not in _types_of(desc, name):
            return Refusal(Reason.DATA_TYPE, f"{own.data_type} of {name}")
    if desc.weights_iter_desc.dims[2] != desc.outputs_of_cells:
        return Refusal(Reason.SHAPE, "states of other channels behind a step than before")
    return None


def _types_of(desc: RnnDesc, name: str) -> tuple[DataType, ...]:
    """The types that a tensor may have: where inputs are integers, weights are too, and states and
    results may be."""
    data = desc.src_layer_desc.data_type
    if name == "lengths_desc":
        return (DataType.s32,)
    if not desc.is_integer:
        return _TYPES
    if name in _MULTIPLIED:
        return (data if name == "src_layer_desc" else DataType.s8,)
    return (*_TYPES, data) if name in _STATES else _TYPES


def _conf(desc: RnnDesc, isa: Isa, operands: Operands, attr: PrimitiveAttr) -> RnnConf:
    def there(own: MemoryDesc) -> MemoryDesc | None:
        return None if own.is_zero else own

    reverse, added = reversed_of(desc.direction), desc.direction is Direction.bidirectional_sum
    return RnnConf(
        desc.alg_kind, desc.activation or Alg.eltwise_tanh, desc.alpha, reverse, added, isa.lanes,
        desc.src_layer_desc, there(desc.src_iter_desc), there(desc.src_iter_c_desc),
        there(desc.attention_desc), desc.weights_layer_desc, desc.weights_iter_desc,
        there(desc.weights_peephole_desc), there(desc.weights_projection_desc),
        there(desc.bias_desc), desc.dst_layer_desc, there(desc.dst_iter_desc),
        there(desc.dst_iter_c_desc), there(desc.lengths_desc), operands, attr.rnn_qparams,
    )  # fmt: skip


def _flops(desc: RnnDesc) -> int:
    """Twice the multiplications of inputs, states and the projection."""
    layers, directions, inputs, gates, channels = desc.weights_layer_desc.dims
    rows = desc.src_layer_desc.dims[0] * desc.src_layer_desc.dims[1] * layers * directions
    own = gates * channels * (inputs + desc.weights_iter_desc.dims[2])
    if not desc.weights_projection_desc.is_zero:
        own += channels * desc.outputs_of_cells
    return 2 * rows * own


def _is_lstm(desc: RnnDesc) -> bool:
    return desc.alg_kind is Alg.vanilla_lstm


def _attentive(desc: RnnDesc) -> bool:
    return desc.alg_kind in _ATTENTIVE


RnnDesc.operation = Operation(
    kind="rnn",
    summary="RNN: cells that pass their states from step to step",
    driver=DRIVER,
    roles=(
        Role(
            Arg.SRC_LAYER, "src_layer", "src_layer_desc", reads=FORWARD, like=("",), letters="tnc",
            case=case_of("src_layer_desc", 0),
        ),
        Role(
            Arg.SRC_ITER, "src_iter", "src_iter_desc", reads=FORWARD, optional=True, like=("",),
            letters="ldnc", case=row_major("src_iter_desc"),
        ),
        Role(
            Arg.SRC_ITER_C, "src_iter_c", "src_iter_c_desc", reads=FORWARD, optional=True,
            when=_is_lstm, like=("",), letters="ldnc", case=row_major("src_iter_c_desc"),
        ),
        Role(
            Arg.AUGRU_ATTENTION, "augru_attention", "attention_desc", reads=FORWARD,
            when=_attentive, like=("",), letters="tnc", case=row_major("attention_desc"),
        ),
        Role(
            Arg.SEQUENCE_LENGTHS, "lengths", "lengths_desc", reads=FORWARD, optional=True,
            like=("",), letters="n", case=row_major("lengths_desc", "s32", "with-lengths"),
        ),
        Role(
            Arg.WEIGHTS_LAYER, "wei_layer", "weights_layer_desc", reads=FORWARD, chosen=True,
            letters="ldigo", case=case_of("weights_layer_desc", 1),
        ),
        Role(
            Arg.WEIGHTS_ITER, "wei_iter", "weights_iter_desc", reads=FORWARD, chosen=True,
            letters="ldigo", case=case_of("weights_iter_desc", 1),
        ),
        Role(
            Arg.WEIGHTS_PEEPHOLE, "wei_peephole", "weights_peephole_desc", reads=FORWARD,
            optional=True, when=_is_lstm, like=("",), letters="ldgo",
            case=row_major("weights_peephole_desc", "f32", "with-peephole"),
        ),
        Role(
            Arg.WEIGHTS_PROJECTION, "wei_proj", "weights_projection_desc", reads=FORWARD,
            optional=True, when=_is_lstm, like=("",), letters="ldio",
            case=row_major("weights_projection_desc", "", "with-projection"),
        ),
        Role(
            Arg.BIAS, "bias", "bias_desc", reads=FORWARD, optional=True, like=("",),
            letters="ldgo", case=row_major("bias_desc", "f32"),
        ),
        Role(
            Arg.DST_LAYER, "dst_layer", "dst_layer_desc", writes=FORWARD, like=("",),
            letters="tnc", case=case_of("dst_layer_desc", 2),
        ),
        Role(
            Arg.DST_ITER, "dst_iter", "dst_iter_desc", writes=FORWARD, optional=True, like=("",),
            letters="ldnc", case=row_major("dst_iter_desc"),
        ),
        Role(
            Arg.DST_ITER_C, "dst_iter_c", "dst_iter_c_desc", writes=FORWARD, optional=True,
            when=_is_lstm, like=("",), letters="ldnc", case=row_major("dst_iter_c_desc"),
        ),
    ),
    parameters=(
        Parameter("alg_kind", Member(Alg, tuple(GATES)), lambda case: case["alg"].alg, "alg"),
        Parameter(
            "direction", Member(Direction), lambda case: case["direction"].alg, "direction"
        ),
        Parameter(
            "activation", Member(Alg, _ACTIVATIONS, optional=True),
            lambda case: case["activation"].alg if case["alg"] == "VANILLA_RNN" else None,
            "activation",
        ),
        Parameter("alpha", Real(), lambda _: 0.0, "alpha", usual=0.0),
    ),
    flops=_flops,
    invalid=invalid,
    attributes=quantize,
    reference=SPECIFICATION,
    examples=(
        "--activation=RELU,TANH,LOGISTIC --direction=right2left l1t3mb5sic19",
        "--alg=VANILLA_LSTM,LBR_GRU --direction=concat,sum --tag=abx l2t3mb7sic20",
        "--alg=VANILLA_LSTM --with-peephole=true --with-projection=true t2mb13sic9slc30dhc33dic9",
        "--alg=VANILLA_LSTM,VANILLA_AUGRU --with-lengths=true --direction=sum t3mb5sic17slc24dhc17",
        "--alg=VANILLA_GRU,LBR_AUGRU --direction=concat t3mb5sic17slc24dhc17",
        "--cfg=u8u8u8u8,s8s8s8f32 --alg=VANILLA_LSTM,VANILLA_GRU --scaling=per_oc t3mb5sic21",
        "--cfg=f32u8f32u8 --alg=VANILLA_LSTM --with-projection=true mb5sic9dhc21dic9",
        "--cfg=bf16,f16 --alg=VANILLA_LSTM,VANILLA_GRU --direction=sum t2mb9sic37",
    ),
    implementations=(Implementation("steps", _plan, FORWARD, fixes=True),),
)  # fmt: skip
