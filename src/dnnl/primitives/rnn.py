"""Recurrent networks: one description for all cells, and who makes it of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.kernels.rnn.problem import GATES
from dnnl.primitives.checks import spelled_size
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation
from dnnl.primitives.operation import FORWARD, TRAINING, Operation, Parameter, Role
from dnnl.primitives.parameters import Cells, Flags, Letters, Member, Real
from dnnl.primitives.rnn_cases import SHAPES, case_of, counts, invalid, quantize, row_major, states
from dnnl.primitives.rnn_gradients import (
    GRADIENT_ROLES,
    GRADIENTS,
    attentive,
    completed,
    is_lstm,
    workspace,
    workspace_elements,
)
from dnnl.primitives.rnn_language import DRIVER
from dnnl.primitives.rnn_plans import plan
from dnnl.reference.rnn_check import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.cell_functions import GATE_LETTERS, CellFunctions, places_of
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM, Alg, Direction, PropKind, RnnFlags
from dnnl.types.memory_desc import MemoryDesc

_ACTIVATIONS = (Alg.eltwise_relu, Alg.eltwise_tanh, Alg.eltwise_logistic)
_READS = FORWARD | GRADIENTS
_INTEGERS = (DataType.u8, DataType.s8)


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
    above the first read what the one below gives (SLC = DIC), steps the states before: SIC = DIC
    unless T is 1 and there are no lengths.

    First states that are absent are zeros, as is a bias; last ones may be absent too. A row has as
    many steps as the s32 ``lengths`` say: those behind leave its states as they are and give zeros.
    ``activation`` is that of vanilla cells, ``alpha`` the slope of its relu below 0. In inference
    cells may have ``functions`` of their own instead, a `CellFunctions` for each direction.

    Frameworks have gates in different orders. ``gate_order`` is that of weights_layer, weights_iter
    and bias, and of their gradients, scales and zero points, by the letters of the cell's formula,
    with c for c~: "ruo" for a GRU of PyTorch, whose z and n are u and o, "iofc" for an LSTM of
    ONNX. Usual are "ifco", "uro" and, for vanilla cells, "h". Peepholes are those of i, f and o in
    any case, and b' is the last bias.

    Arguments SRC_LAYER, SRC_ITER, SRC_ITER_C, AUGRU_ATTENTION, SEQUENCE_LENGTHS, WEIGHTS_LAYER,
    WEIGHTS_ITER, WEIGHTS_PEEPHOLE, WEIGHTS_PROJECTION, BIAS, DST_LAYER, DST_ITER, DST_ITER_C; in
    training WORKSPACE, which the gradient reads: f32, its only dimension follows from the sizes.
    Gradients have all of these as inputs, and DIFF_DST_LAYER, DIFF_DST_ITER, DIFF_DST_ITER_C, zeros
    where they are absent. They write DIFF_ and the name of each input but the lengths; those of
    src_layer, of first states and of the bias may be absent. DIFF_WEIGHTS_..., DIFF_BIAS are added
    to what memory holds, unless ``flags`` are ``diff_weights_overwrite``; forward passes have none.

    All but the lengths may be f32, bf16 or f16. Gates, and the states c, are f32 from step to step;
    so are the states h, unless src_layer and weights are bf16, and the processor multiplies pairs
    of it: then products, also those of a gradient, read bf16. Or, in inference, src_layer is u8 or
    s8 and weights are s8, which stand for other numbers by the attribute's ``rnn_qparams``;
    src_iter, dst_layer and dst_iter may be of the type of src_layer then, and h is an integer from
    step to step.

    Or, in inference, weights are s8 or u8 beside floats, and stand for scale * (w - zero point):
    ``set_scales`` and ``set_zero_points`` of WEIGHTS_LAYER, WEIGHTS_ITER and WEIGHTS_PROJECTION
    have any mask without the dimension of the inputs, as 27 for each column of each layer and
    direction. Zero points are s32, s8 or u8. Where the processor multiplies bytes, states have a
    bound (cells of usual functions but relu, without projection and attention) and all weights are
    of one type, products read inputs and states rounded to 16 bits, by the largest number of their
    row. Elsewhere weights become f32 as they are read.

    Layouts may be ``any``: that of weights has blocks of units, everything else is row-major; those
    of a gradient are those of the forward pass that is its ``hint``. Channels must be contiguous;
    of weights of floats, and of their gradients, inputs may be instead. Sizes may be RUNTIME_DIM:
    one kernel serves any T and N, other ones that are open have a kernel for the sizes of each
    execution.
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
    flags: RnnFlags = RnnFlags.undef
    functions: tuple[CellFunctions, ...] | None = None
    gate_order: str = ""
    diff_src_layer_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_src_iter_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_src_iter_c_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_attention_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_weights_layer_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_weights_iter_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_weights_peephole_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_weights_projection_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_bias_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_dst_layer_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_dst_iter_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_dst_iter_c_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)

    def check_dims(self) -> None:
        """Each tensor has as many dimensions as it has to."""
        for name, desc in self.present():
            names = SHAPES[name]
            if desc.ndims != len(names):
                rule = f"expected {len(names)} dimensions, ({', '.join(names)})"
                raise InvalidArguments(name, desc.dims, rule)

    def check(self) -> None:
        """Sizes of one name are one size, and gates, directions and states fit the cells."""
        has_activation = self.alg_kind is Alg.vanilla_rnn and self.functions is None
        if (self.activation is not None) != has_activation:
            rule = "vanilla cells have an activation or functions, and no others an activation"
            raise InvalidArguments("activation", self.activation, rule)
        self._check_functions()
        letters = GATE_LETTERS[self.alg_kind]
        if self.gate_order and sorted(self.gate_order) != sorted(letters):
            rule = f"expected each of {', '.join(letters)} once: the gates of {self.alg_kind}"
            raise InvalidArguments("gate_order", self.gate_order, rule, f"its own is {letters!r}")
        if self.gate_order == letters:  # one description for what is the same
            self._set("gate_order", "")
        if self.lengths_desc.data_type not in (DataType.undef, DataType.s32):
            rule = "the lengths of sequences are s32"
            raise InvalidArguments("lengths_desc", str(self.lengths_desc), rule)
        given = {
            key: (size, f"that of {self.direction if key == 'D' else self.alg_kind}")
            for key, size in self._counts.items()
        }
        for name, desc in self.present():
            for size, key in zip(desc.dims, SHAPES[name], strict=True):
                if size == RUNTIME_DIM:
                    continue
                wanted, why = given.setdefault(key, (size, f"as in {name}"))
                if size != wanted:
                    shape = ", ".join(SHAPES[name])
                    rule = f"expected ({shape}) with {key} = {wanted}, {why}"
                    raise InvalidArguments(name, desc.dims, rule)
                if key == "L" and not size:
                    rule = "expected at least one layer (L)"
                    raise InvalidArguments(name, desc.dims, rule)
        self._check_relations({key: size for key, (size, _) in given.items()})

    def _check_functions(self) -> None:
        """Raise unless functions are as many as cells and directions have."""
        if self.functions is None:
            return
        if self.propagation is not PropKind.forward_inference:
            rule = "only forward_inference has functions of its own; gradients are those of others"
            raise Unimplemented(f"functions in {self.propagation}: {rule}")
        name, places = "functions", places_of(self.alg_kind)
        given, spelled = self.functions, "+".join(map(str, self.functions))
        if len(given) != self._counts["D"]:
            rule = f"expected {self._counts['D']}, one for each direction of {self.direction}"
            raise InvalidArguments(name, spelled, rule)
        if any(len(own.functions) != places for own in given):
            rule = f"{self.alg_kind} has {places}: {', '.join('fgh'[:places])}"
            raise InvalidArguments(name, spelled, rule)
        if any(own.coupled for own in given) and self.alg_kind is not Alg.vanilla_lstm:
            raise InvalidArguments(name, spelled, "only gates of an LSTM are coupled")

    def _check_relations(self, sizes: dict[str, int]) -> None:
        """Raise unless results fit what reads them."""
        if self.weights_projection_desc.is_zero:
            self._check_equal(sizes, "DIC", "DHC", "dst_iter_desc", "there is no projection")
        sizes.setdefault("DIC", sizes.get("DHC", RUNTIME_DIM))
        if sizes.get("L", 1) > 1:
            rule = "a layer reads what the one below gives"
            self._check_equal(sizes, "SLC", "DIC", "weights_layer_desc", rule)
        if sizes.get("SIC") != sizes["DIC"] and sizes.get("T") != 1:
            rule = "a step reads the states of the one before, unless T = 1"
            self._check_equal(sizes, "SIC", "DIC", "weights_iter_desc", rule)
        if not self.lengths_desc.is_zero:
            rule = "a row of length 0 gives its first states as the last; T = 1 needs no lengths"
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

    def present(self) -> Iterator[tuple[str, MemoryDesc]]:
        """The tensors that are there, by their fields."""
        for name, desc in self._given():
            if not desc.is_zero:
                yield name, desc

    def size_name(self, argument: int, dim: int, letter: str) -> str:
        """The name of the dimension; the workspace has one of its own."""
        names = SHAPES.get(self.operation.role(argument).field, (letter,))
        return names[dim]

    def derived_size(
        self, argument: int, dim: int, dims: Mapping[int, Sequence[int]]
    ) -> int | None:
        """That of the workspace."""
        if argument != Arg.WORKSPACE:
            return None
        steps, rows, _ = dims[Arg.SRC_LAYER]
        made = workspace_elements(self, dict(self.known_sizes()) | {"T": steps, "N": rows})
        return None if made == RUNTIME_DIM else made

    def other_sizes(self) -> Sequence[Mapping[str, int]]:
        """Few rows, which do not copy weights that are row-major."""
        return ({"T": 5, "N": 3},)

    def complete_typical(self, dims: dict[int, list[int]]) -> None:
        """Gates and directions are those of the cells, and channels agree."""
        known = dict(self.known_sizes())
        channels = known.get("DHC", _TYPICAL)
        outputs = known.get("DIC", channels)
        usual = self._counts | {
            "L": 1, "SLC": outputs, "SIC": outputs, "DHC": channels, "DIC": outputs,
            "DLC": self._counts["joined"] * outputs,
        }  # fmt: skip
        sizes, (steps, rows, _) = usual | known, dims[Arg.SRC_LAYER]
        for argument, own in dims.items():
            names = SHAPES.get(self.operation.role(argument).field)
            if names is None:
                own[:] = [workspace_elements(self, sizes | {"T": steps, "N": rows})]
                continue
            own[:] = [
                size if name in self.single else sizes[name]
                for name, size in zip(names, own, strict=True)
            ]

    def known_sizes(self) -> Iterator[tuple[str, int]]:
        """Sizes by their names, those left out that only executions know."""
        for name, desc in self.present():
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


def _flops(desc: RnnDesc) -> int:
    """Twice the multiplications of inputs, states and the projection."""
    layers, directions, inputs, gates, channels = desc.weights_layer_desc.dims
    rows = desc.src_layer_desc.dims[0] * desc.src_layer_desc.dims[1] * layers * directions
    own = gates * channels * (inputs + desc.weights_iter_desc.dims[2])
    if not desc.weights_projection_desc.is_zero:
        own += channels * desc.outputs_of_cells
    return 2 * rows * own


RnnDesc.operation = Operation(
    kind="rnn",
    summary="RNN: cells that pass their states from step to step",
    driver=DRIVER,
    roles=(
        Role(
            Arg.SRC_LAYER, "src_layer", "src_layer_desc", reads=_READS, like=("",), letters="tnc",
            case=case_of("src_layer_desc", 0),
        ),
        Role(
            Arg.SRC_ITER, "src_iter", "src_iter_desc", reads=_READS, optional=True, like=("",),
            letters="ldnc", case=states("src_iter_desc"),
        ),
        Role(
            Arg.SRC_ITER_C, "src_iter_c", "src_iter_c_desc", reads=_READS, optional=True,
            when=is_lstm, like=("",), letters="ldnc", case=states("src_iter_c_desc"),
        ),
        Role(
            Arg.AUGRU_ATTENTION, "augru_attention", "attention_desc", reads=_READS,
            when=attentive, like=("",), letters="tnc", case=row_major("attention_desc"),
        ),
        Role(
            Arg.SEQUENCE_LENGTHS, "lengths", "lengths_desc", reads=_READS, optional=True,
            like=("",), letters="n", case=row_major("lengths_desc", "s32", "with-lengths"),
        ),
        Role(
            Arg.WEIGHTS_LAYER, "wei_layer", "weights_layer_desc", reads=_READS, chosen=True,
            letters="ldigo", case=case_of("weights_layer_desc", 1),
        ),
        Role(
            Arg.WEIGHTS_ITER, "wei_iter", "weights_iter_desc", reads=_READS, chosen=True,
            letters="ldigo", case=case_of("weights_iter_desc", 1),
        ),
        Role(
            Arg.WEIGHTS_PEEPHOLE, "wei_peephole", "weights_peephole_desc", reads=_READS,
            optional=True, when=is_lstm, like=("",), letters="ldgo",
            case=row_major("weights_peephole_desc", "f32", "with-peephole"),
        ),
        Role(
            Arg.WEIGHTS_PROJECTION, "wei_proj", "weights_projection_desc", reads=_READS,
            optional=True, when=is_lstm, like=("",), letters="ldio",
            case=row_major("weights_projection_desc", "", "with-projection"),
        ),
        Role(
            Arg.BIAS, "bias", "bias_desc", reads=_READS, optional=True, like=("",),
            letters="ldgo", case=row_major("bias_desc", "f32"),
        ),
        Role(
            Arg.DST_LAYER, "dst_layer", "dst_layer_desc", writes=FORWARD, reads=GRADIENTS,
            like=("",), letters="tnc", case=case_of("dst_layer_desc", 2),
        ),
        Role(
            Arg.DST_ITER, "dst_iter", "dst_iter_desc", writes=FORWARD, reads=GRADIENTS,
            optional=True, like=("",), letters="ldnc", case=states("dst_iter_desc"),
        ),
        Role(
            Arg.DST_ITER_C, "dst_iter_c", "dst_iter_c_desc", writes=FORWARD, reads=GRADIENTS,
            optional=True, when=is_lstm, like=("",), letters="ldnc",
            case=states("dst_iter_c_desc"),
        ),
        Role(
            Arg.WORKSPACE, "ws", writes=TRAINING, reads=GRADIENTS, derived=workspace, letters="w",
        ),
        *GRADIENT_ROLES,
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
        Parameter(
            "flags", Flags(RnnFlags.diff_weights_overwrite, "recurrent network"),
            lambda case: RnnFlags(len(case["flags"])), "flags", usual=RnnFlags.undef,
            passes=GRADIENTS,
        ),
        Parameter("functions", Cells(), lambda _: None, "functions"),
        Parameter(
            "gate_order", Letters(), lambda case: case["gate-order"], "gate_order", usual=""
        ),
    ),
    complete=completed,
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
        "--cfg=f32_s8,bf16_s8 --alg=VANILLA_LSTM --attr-scales=wei:27+wei_iter:24 t3mb5sic21",
        "--cfg=f32_u8 --alg=LBR_GRU --tag=any,abx --attr-zero-points=wei:0:2 t3mb5sic21",
        "--cfg=f32_s8 --alg=VANILLA_LSTM --with-projection=1 --attr-scales=wei_proj:11 sic9dhc21",
        "--cfg=bf16,f16 --alg=VANILLA_LSTM,VANILLA_GRU --direction=sum t2mb9sic37",
        "--prop=FWD_D,BWD_DW --alg=VANILLA_LSTM,LBR_AUGRU --direction=concat,sum l2t3mb7sic20",
        "--prop=FWD_D,BWD_DW --flags=O --activation=RELU,LOGISTIC t3mb5sic19",
        "--prop=FWD_D,BWD_DW --alg=LBR_GRU --gate-order=ruo --direction=sum --tag=any,abx t3sic19",
        "--prop=FWD_I --alg=VANILLA_LSTM --with-peephole=1 --gate-order=iofc mb5sic19",
        "--prop=FWD_I,BWD_DW --cfg=f32,bf16 --tag=abx --trivial-strides=false t3mb5sic19slc7",
        "--prop=BWD_DW --alg=VANILLA_LSTM --with-projection=true t2mb9sic9slc30dhc33dic9",
        "--prop=BWD_DW --alg=VANILLA_LSTM --with-peephole=true --with-lengths=true t2mb13sic33",
        "--prop=BWD_DW --cfg=bf16 --alg=VANILLA_GRU,LBR_GRU --direction=right2left t3mb9sic17slc37",
        "--cfg=f32,bf16,u8u8u8u8 --alg=VANILLA_RNN,VANILLA_LSTM --direction=sum mb5sic70slc24dhc34",
        "--prop=FWD_D,BWD_DW --alg=VANILLA_RNN,VANILLA_LSTM --direction=concat mb5sic9slc24dhc34",
    ),
    implementations=(Implementation("steps", plan, FORWARD | GRADIENTS, fixes=True),),
)  # fmt: skip
