"""How an operation will be done on an engine: the chosen implementation and every layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from time import perf_counter

from dnnl import log
from dnnl.codegen import isa as isas
from dnnl.codegen.compile import jit
from dnnl.codegen.epilogue.post_ops import prelu_weights
from dnnl.errors import InvalidArguments
from dnnl.onednn import Value
from dnnl.primitives.choice import choose, written
from dnnl.primitives.desc import Desc, Tensor
from dnnl.primitives.implementation import Candidate, Plan, check_post_ops
from dnnl.primitives.info import Info, look_inside
from dnnl.primitives.sizes import known, known_post_ops, open_operands
from dnnl.primitives.variants import Variant, Variants
from dnnl.runtime.engine import Engine
from dnnl.runtime.image import Unknowns
from dnnl.runtime.threads import checked_num_threads, get_num_threads
from dnnl.types.arg import Arg, coerce_arg, name_of
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dropout import SCALARS
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpPrelu
from dnnl.types.size import is_known

_QUANTIZATION = Arg.SCALES | Arg.ZERO_POINTS | Arg.PRECOMPUTED_REDUCTIONS


def select_isa(engine: Engine) -> isas.Isa:
    """The instruction set that kernels for an engine are written for.

    Raises InvalidArguments if ``DNNL_MAX_CPU_ISA`` names none.
    """
    features = engine.features
    return isas.select(
        features.arch, features.cpu, features.flags, features.universal, features.caches
    )


def limited(engine: Engine, isa: str) -> Engine:
    """The engine with no more features than an instruction set has, by its name.

    Raises InvalidArguments for one that there is not, or that the engine does not execute.
    """
    if not isinstance(isa, str):
        raise InvalidArguments("isa", isa, "expected the name of an instruction set", "'avx2'")
    row, own = isas.find(isa), engine.features
    missing = [feature for feature in row.features if not own.has(feature)]
    if row.arch not in (own.arch, "any") or missing:
        lacks = ", ".join(missing) or row.arch
        rule = f"this machine has no {lacks}, and it has to execute some of the kernels"
        raise InvalidArguments("isa", isa, rule)
    return Engine(engine.kind, engine.index, features=replace(own, flags=frozenset(row.features)))


class PrimitiveDesc(Value):
    """The first implementation that accepts ``desc`` with ``attr`` on ``engine``.

    Layouts given as ``any`` are decided: read them from ``src_desc`` and the like. ``attr`` is
    copied. ``hint`` is the forward description that a backward one belongs to: gradients whose
    layout is left open are laid out as their tensors are there, and so is the workspace. Raises
    :class:`Unimplemented` with every implementation's reason if none accepts.

    ``src_engine`` has the source of a reorder, if that is not ``engine``, on which dst
    is. ``self.engine`` is the one of the two that executes and that streams must be of: the one
    whose memory the host can touch, ``engine`` if it can touch both or neither.
    """

    def __init__(
        self,
        desc: Desc,
        engine: Engine,
        attr: PrimitiveAttr | None = None,
        hint: PrimitiveDesc | None = None,
        *,
        src_engine: Engine | None = None,
    ) -> None:
        if not isinstance(desc, Desc):
            raise InvalidArguments("desc", desc, "expected an operation, as dnnl.EltwiseDesc")
        if not isinstance(engine, Engine):
            raise InvalidArguments("engine", engine, "expected a dnnl.Engine")
        if not isinstance(attr, PrimitiveAttr | None):
            raise InvalidArguments("attr", attr, "expected a dnnl.PrimitiveAttr or None")
        if not isinstance(hint, PrimitiveDesc | None):
            raise InvalidArguments("hint", hint, "expected a dnnl.PrimitiveDesc or None")
        if not isinstance(src_engine, Engine | None):
            raise InvalidArguments("src_engine", src_engine, "expected a dnnl.Engine or None")
        started = perf_counter()
        self._given: Mapping[int, MemoryDesc] | None = None
        self.src_engine = engine if src_engine is None else src_engine
        self.dst_engine = engine
        self.engine = _executing(desc, self.src_engine, engine)
        self.isa = select_isa(self.engine)
        log.describe("isa", lambda: f"{self.engine.kind},isa:{self.isa.name}")
        try:
            forward = None if hint is None else _forward(desc, hint)
            self._choice = choose(desc, attr, forward, self.engine, self.isa)
        except InvalidArguments as error:
            if log.enabled("check", desc.kind):
                log.line("primitive", "create:check", desc.kind, error)
            raise
        self._candidates = self._choice.candidates
        self.creation_time = perf_counter() - started

    def next_impl(self) -> bool:
        """Move on to the next implementation that accepts; False, and no change, if none does."""
        self._candidates, choice = self._choice.request.ask(self._candidates)
        if choice is not None:
            self._choice = choice
        return choice is not None

    @property
    def attr(self) -> PrimitiveAttr:
        """The attributes, with every layout decided; a copy, as a description never changes."""
        return self._choice.attr.copy()

    @property
    def desc(self) -> Desc:
        """The operation with every layout decided."""
        desc = self._choice.plan.desc
        assert isinstance(desc, Desc)
        return desc

    @property
    def plan(self) -> Plan:
        """What the chosen implementation decided."""
        return self._choice.plan

    @property
    def variants(self) -> Variants | None:
        """The kernels, where only executions know sizes."""
        return self._choice.variants

    @property
    def impl_info(self) -> str:
        """Generator and instruction set, ``nest:avx2``."""
        return f"{self._choice.name}:{self.isa.name}"

    @property
    def candidates(self) -> Sequence[Candidate]:
        """The implementations that were asked so far, with their answers."""
        return self._candidates

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two primitives the same."""
        return self._choice.key

    @property
    def across_engines(self) -> bool:
        """Whether src is on another engine than dst."""
        return self.src_engine != self.dst_engine

    def engine_of(self, argument: int) -> Engine:
        """The engine that has the memory of an argument."""
        if argument == Arg.SRC:
            return self.src_engine
        return self.dst_engine if argument == Arg.DST else self.engine

    def arg_desc(self, arg: Arg | int | str) -> MemoryDesc:
        """The descriptor of the memory to pass as an argument; the zero one if there is none."""
        argument = coerce_arg(arg, "arg")
        if argument == Arg.SCRATCHPAD:
            return self.scratchpad_desc
        if argument & _QUANTIZATION:
            return self._parameter_desc(argument)
        found = self.desc.desc_of(argument)
        if not found.is_zero:
            return found
        dropout = self._choice.attr.dropout
        if dropout is not None and argument in dropout.descs:
            return dropout.descs[argument]
        if argument == Arg.ROUNDING_SEED and self._choice.attr.rounding_modes:
            return MemoryDesc((1,), "s32")
        for hint in self.plan.hints:
            if hint.argument == argument:
                return hint.desc
        return self._operand_desc(argument)

    def _operand_desc(self, argument: int) -> MemoryDesc:
        """The descriptor of an operand of a post-op."""
        for begin, entries, dst in self.desc.stages(self._choice.attr.post_ops):
            for number, entry in enumerate(entries, begin):
                if isinstance(entry, PostOpPrelu) and argument == Arg.post_op(number) | Arg.WEIGHTS:
                    return prelu_weights(entry.mask, dst)
                for operand, desc in entry.operands:
                    if argument == Arg.post_op(number) | operand:
                        return desc
        return MemoryDesc.zero()

    def _parameter_desc(self, argument: int) -> MemoryDesc:
        """The descriptor of scales, zero points or precomputed reductions."""
        for flag, specs in (
            (Arg.SCALES, self._choice.attr.scales),
            (Arg.ZERO_POINTS, self._choice.attr.zero_points),
            (Arg.PRECOMPUTED_REDUCTIONS, self._choice.attr.precomputed_reductions),
        ):
            owner = argument - flag
            if argument & flag and owner in specs:
                return specs[owner].desc(self.desc.quantized(owner).dims)
        return MemoryDesc.zero()

    def with_sizes(self, given: Mapping[int, MemoryDesc]) -> PrimitiveDesc:
        """This description with the sizes of an execution: ``given`` are the descriptors of its
        tensors, and of those operands of post-ops that are open, by argument. Raises
        InvalidArguments where one does not match the description."""
        made = copy(self)
        operands = open_operands(self._choice.attr.post_ops)
        tensors = {arg: desc for arg, desc in given.items() if arg not in operands}
        desc, attr = known(self.desc, tensors), self._choice.attr
        if operands:
            post_ops = known_post_ops(attr.post_ops, given)
            check_post_ops(post_ops, desc.outputs[0].desc)
            attr = attr.with_layouts(post_ops, attr.dropout)
        made._choice = replace(self._choice, plan=replace(self.plan, desc=desc), attr=attr)
        made._given = given
        return made

    def with_scratchpad(self, nbytes: int) -> PrimitiveDesc:
        """This description of an execution, which takes so many bytes of temporary memory."""
        made = copy(self)
        made._choice = replace(self._choice, plan=replace(self.plan, scratchpad=nbytes))
        made._given = None
        return made

    @property
    def patterns(self) -> Mapping[int, MemoryDesc]:
        """What the memories of an execution must match that decides on sizes, by argument."""
        tensors = {tensor.argument: tensor.desc for tensor in self.desc.tensors}
        return {**tensors, **open_operands(self._choice.attr.post_ops)}

    @property
    def scratchpad_desc(self) -> MemoryDesc:
        """Temporary memory, in bytes; the zero descriptor if none is needed. Where executions
        decide on it, `with_sizes` of a description knows it, which may build a kernel."""
        size = self.plan.scratchpad
        if self.desc.writes_nothing:
            return MemoryDesc.zero()
        if self.variants is not None and self._given is not None:
            given = {**self.patterns, **self._given}
            _, (_, _, size) = self.variants.find(given, _unknowns)
        if not is_known(size):
            return MemoryDesc((RUNTIME_DIM,), "u8")
        return MemoryDesc((size,), "u8") if size else MemoryDesc.zero()

    @property
    def written(self) -> tuple[Tensor, ...]:
        """The outputs, those of attributes behind those of the operation."""
        return written(self.desc, self._choice.attr)

    @property
    def src_desc(self) -> MemoryDesc:
        """The source, or the first of several."""
        desc = self.arg_desc(Arg.SRC)
        return self.arg_desc(Arg.MULTIPLE_SRC) if desc.is_zero else desc

    @property
    def src1_desc(self) -> MemoryDesc:
        """The second source of a binary operation."""
        return self.arg_desc(Arg.SRC_1)

    @property
    def weights_desc(self) -> MemoryDesc:
        """The weights."""
        return self.arg_desc(Arg.WEIGHTS)

    @property
    def bias_desc(self) -> MemoryDesc:
        """The bias."""
        return self.arg_desc(Arg.BIAS)

    @property
    def dst_desc(self) -> MemoryDesc:
        """The destination."""
        return self.arg_desc(Arg.DST)

    @property
    def workspace_desc(self) -> MemoryDesc:
        """What a forward training primitive leaves for the backward one."""
        return self.arg_desc(Arg.WORKSPACE)

    @property
    def diff_src_desc(self) -> MemoryDesc:
        """The gradient of the source."""
        return self.arg_desc(Arg.DIFF_SRC)

    @property
    def diff_weights_desc(self) -> MemoryDesc:
        """The gradient of the weights."""
        return self.arg_desc(Arg.DIFF_WEIGHTS)

    @property
    def diff_bias_desc(self) -> MemoryDesc:
        """The gradient of the bias."""
        return self.arg_desc(Arg.DIFF_BIAS)

    @property
    def diff_dst_desc(self) -> MemoryDesc:
        """The gradient of the destination."""
        return self.arg_desc(Arg.DIFF_DST)

    def info(self, num_threads: int | None = None) -> Info:
        """What is done how, and what may be expected of it: layouts, register tile, copies, bytes,
        arithmetic and the limit by the machine's peaks on so many threads, by default as many as
        executions have. ``print(pd.info())`` shows it.

        The kernel is written once more, and the first call for a type or an amount of bytes
        measures the machine, in a tenth of a second. Raises Unimplemented where only the execution
        knows the sizes.
        """
        threads = get_num_threads() if num_threads is None else checked_num_threads(num_threads)
        attr = self._choice.attr
        return look_inside(
            self.impl_info, self.desc, self.plan, attr, self.engine, self.arg_desc, threads
        )

    def verbose_fields(self) -> str:
        """Engine, kind, implementation, propagation, descriptors, attributes and problem."""
        asked, desc = self._choice.request.asked, self.desc
        layouts = {tensor.argument: tensor.desc.format_kind for tensor in asked.named}
        tokens = [
            f"{tensor.name}:{tensor.desc.token(layouts[tensor.argument] is FormatKind.any)}"
            f"{tensor.remark}"
            for tensor in desc.named
        ]
        parts = [self.engine.kind, desc.kind, self.impl_info, desc.spelled_propagation]
        given = [" ".join(tokens), str(self._choice.attr), asked.auxiliary, desc.problem]
        return ",".join([*parts, *given])

    def __repr__(self) -> str:
        return f"<PrimitiveDesc {self.verbose_fields()}>"


def _unknowns(variant: Variant) -> Unknowns:
    """What a kernel found out about sizes, which is generated for that."""
    unknowns = jit.image(variant.plan.recipe)[0].unknowns
    assert unknowns is not None
    return unknowns


def _forward(desc: Desc, hint: PrimitiveDesc) -> Desc:
    """The forward description that a backward one belongs to."""
    own = hint.desc
    if desc.propagation.is_forward:
        rule = "a forward description needs no hint"
        raise InvalidArguments("hint", str(own), rule)
    if type(own) is not type(desc) or not own.propagation.is_forward:
        rule = f"expected the description of a forward {desc.kind}"
        raise InvalidArguments("hint", str(own), rule)
    if (own.problem, own.auxiliary) != (desc.problem, desc.auxiliary_in(own.propagation)):
        raise InvalidArguments("hint", str(own), f"expected the forward pass of {desc}")
    left = desc.desc_of(Arg.WORKSPACE)
    if not left.is_zero and own.desc_of(Arg.WORKSPACE).is_zero:
        rule = f"the gradient of {desc} reads the workspace of forward_training"
        raise InvalidArguments("hint", f"{own.spelled_propagation} {own}", rule)
    return own


def _executing(desc: Desc, src: Engine, dst: Engine) -> Engine:
    """The engine that executes."""
    if src == dst:
        return dst
    if not desc.operation.across_engines:
        rule = f"all tensors of a {desc.kind} are on one engine, here {dst!r}"
        raise InvalidArguments("src_engine", src, rule, "reorder the source there first")
    return src if src.host_memory and not dst.host_memory else dst


def is_parameter(argument: int) -> bool:
    """Whether an argument holds scales, zero points, or numbers for dropout or rounding."""
    return bool(argument & _QUANTIZATION) or argument in {*SCALARS, Arg.ROUNDING_SEED}


def describe(argument: int, desc: MemoryDesc) -> str:
    """An argument and what it must be, for error messages."""
    return f"{name_of(argument)} must be {desc}, dims {desc.dims}"
