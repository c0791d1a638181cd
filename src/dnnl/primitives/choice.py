"""Which implementation does an operation, and how: decided once for all requests that are equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dnnl import config, log
from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import Unimplemented
from dnnl.primitives.cache import Cache
from dnnl.primitives.desc import Desc, Tensor, check_outputs, refuse_compensation, refuse_encoding
from dnnl.primitives.implementation import (
    Candidate,
    Implementation,
    Plan,
    check_dropout,
    check_post_ops,
    resolve_dropout,
)
from dnnl.primitives.sizes import open_operands
from dnnl.primitives.variants import Variants
from dnnl.runtime.engine import Engine
from dnnl.types.arg import Arg, name_of
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.expression import Function
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpFunction


@dataclass(frozen=True, eq=False)
class Request:
    """What implementations are asked for. ``asked`` is the description with what post-ops add to
    it, ``settled`` has the layouts that follow from others. ``attr`` must not be changed."""

    asked: Desc
    settled: Desc
    attr: PrimitiveAttr
    engine: Engine
    isa: Isa

    @classmethod
    def of(
        cls, desc: Desc, attr: PrimitiveAttr, forward: Desc | None, engine: Engine, isa: Isa
    ) -> Request:
        """The request for ``desc``, to which the forward description ``forward`` belongs. Raises
        InvalidArguments where attributes and description do not agree."""
        asked = desc.under(attr.post_ops)
        check_outputs(written(asked, attr))
        for begin, entries, dst in asked.stages(attr.post_ops):
            check_post_ops(entries, dst, begin)
        check_dropout(attr.dropout, asked.outputs[0].desc)
        asked.check_attr(attr)
        return cls(asked, asked.settled(forward), attr, engine, isa)

    def ask(self, asked: tuple[Candidate, ...]) -> tuple[tuple[Candidate, ...], Choice | None]:
        """Ask the implementations behind those that were ``asked`` before: all that were asked by
        now, and the choice of the last of them, None if it refused as well."""
        refused = self._refused()
        candidates = asked
        for impl in self.settled.implementations[len(asked) :]:
            variants = self._variants(impl)
            answer = refused or self._answer(impl, variants)
            if isinstance(answer, Plan):
                candidates += (Candidate(impl.name, None),)
                return candidates, self._choice(candidates, answer, variants)
            candidates += (Candidate(impl.name, answer),)
            self.report(candidates[-1:])
        return candidates, None

    def _variants(self, impl: Implementation) -> Variants | None:
        """The kernels of an implementation for sizes that only executions know; None where all are
        known."""
        if not self.settled.has_runtime_values:
            return None
        patterns = {tensor.argument: tensor.desc for tensor in self.settled.tensors}
        operands = open_operands(self.attr.post_ops)
        configure = partial(_configured, (impl,), self.isa)
        others = tuple(other for other in self.settled.implementations if other is not impl)
        instead = partial(_configured, others, self.isa)
        patterns.update(operands)
        given = self.settled, self.attr, impl.name, configure, instead, patterns
        return Variants(*given, fixes=impl.fixes)

    def _answer(self, impl: Implementation, variants: Variants | None) -> Plan | Refusal:
        """What an implementation answers."""
        if variants is None:
            return impl.configure(self.settled, self.attr, self.isa)
        plan = variants.first()
        if isinstance(plan, Refusal):
            return plan
        return replace(plan, post_ops=tuple(self.attr.post_ops))

    def report(self, candidates: Iterable[Candidate]) -> None:
        """Write a verbose line for each refusal."""
        kind = self.asked.kind
        if log.enabled("dispatch", kind):
            for candidate in candidates:
                if candidate.refusal is not None:
                    reason = f"{self.engine.kind},{kind},{candidate.name},{candidate.refusal}"
                    log.line("primitive", "create:dispatch", reason)

    def _refused(self) -> Refusal | None:
        """Why no implementation can do it."""
        post_ops = tuple(self.attr.post_ops)
        return (
            refuse_compensation(self.asked, post_ops)
            or refuse_encoding(self.asked, post_ops)
            or _refuse_host_scalars(self.attr, self.engine)
            or _refuse_open_operands(self.asked, self.attr)
        )

    def _choice(
        self, candidates: tuple[Candidate, ...], plan: Plan, variants: Variants | None
    ) -> Choice:
        name = candidates[-1].name
        dropout = resolve_dropout(self.attr.dropout, plan.desc.outputs[0].desc)
        attr = self.attr
        if (plan.post_ops, dropout) != (tuple(attr.post_ops), attr.dropout):
            attr = attr.with_layouts(plan.post_ops, dropout)
        key = self.engine, plan.desc, attr.key, self.isa, name
        return Choice(self, candidates, name, plan, attr, key, variants)


def _configured(
    implementations: Sequence[Implementation], isa: Isa, desc: Desc, attr: PrimitiveAttr
) -> Plan | Refusal:
    """The plan of the first implementation that accepts; the last refusal if none does."""
    answer: Plan | Refusal = Refusal(Reason.RUNTIME_DIM)
    for impl in implementations:
        answer = impl.configure(desc, attr, isa)
        if isinstance(answer, Plan):
            break
    return answer


@dataclass(frozen=True, eq=False)
class Choice:
    """The plan of the implementation ``name``, the last of the ``candidates``; the attributes with
    every layout decided, which must not be changed; what makes two primitives the same; and the
    kernels for sizes that only executions know."""

    request: Request
    candidates: tuple[Candidate, ...]
    name: str
    plan: Plan
    attr: PrimitiveAttr
    key: tuple[object, ...]
    variants: Variants | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """By the question, which has the same answer elsewhere."""
        return _asked_again, (self.request, self.candidates)


def _asked_again(request: Request, candidates: tuple[Candidate, ...]) -> Choice:
    """The choice of the last of the candidates."""
    _, choice = request.ask(candidates[:-1])
    assert choice is not None, "who accepted once accepts again"
    return choice


CHOICES: Cache[Choice] = Cache(lambda: int(config.get("primitive_cache_capacity")))


def choose(
    desc: Desc, attr: PrimitiveAttr | None, forward: Desc | None, engine: Engine, isa: Isa
) -> Choice:
    """The choice of the first implementation that accepts, which equal requests share.

    Raises InvalidArguments where ``attr`` does not fit ``desc``, Unimplemented where none accepts.
    """
    own = PrimitiveAttr() if attr is None else attr.copy()  # which nobody else can change

    def first() -> Choice:
        request = Request.of(desc, own, forward, engine, isa)
        candidates, choice = request.ask(())
        if choice is None:
            raise Unimplemented(f"nothing does {request.asked} on {engine!r}", candidates)
        return choice

    model = None if forward is None else _exact_desc(forward)
    key = _exact_desc(desc), _exact_attr(own), model, engine, isa
    choice, remembered = CHOICES.get(key, first)
    if remembered:
        choice.request.report(choice.candidates)
    return choice


# Verbose lines and descriptors show more than equality compares, so keys have it too: the names of
# functions, the tags of descriptors and the strides of dimensions of size 1.


def _exact_desc(desc: Desc) -> tuple[object, ...]:
    return type(desc), *(_exact(getattr(desc, name)) for name in desc.fields())


def _exact_attr(attr: PrimitiveAttr) -> tuple[object, ...]:
    values: list[object] = [desc for entry in attr.post_ops for _, desc in entry.operands]
    values += [entry.function for entry in attr.post_ops if isinstance(entry, PostOpFunction)]
    if attr.dropout is not None:
        values.append(attr.dropout.mask_desc)
    return attr.key, *map(_exact, values)


def _exact(value: object) -> object:
    if isinstance(value, MemoryDesc):
        unique = min(value.padded_dims, default=0) > 1
        return value if unique else (value, value.strides, value.tag)
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return (value, value.name) if isinstance(value, Function) else value


def _refuse_host_scalars(attr: PrimitiveAttr, engine: Engine) -> Refusal | None:
    """A refusal of numbers in the host's memory where the engine has another."""
    if engine.host_memory or attr.dropout is None or not attr.dropout.use_host_scalars:
        return None
    return Refusal(Reason.ATTRIBUTE, f"dropout with use_host_scalars on {engine!r}")


def _refuse_open_operands(desc: Desc, attr: PrimitiveAttr) -> Refusal | None:
    """A refusal of a mask of dropout of open sizes, and of operands of post-ops whose sizes are
    open beside tensors whose are known."""
    dropout = attr.dropout
    if dropout is not None and dropout.mask_desc.has_runtime_values:
        return Refusal(Reason.RUNTIME_DIM, "of the mask of a dropout")
    if desc.has_runtime_values:
        return None
    found = [name_of(argument) for argument in open_operands(attr.post_ops)]
    return Refusal(Reason.RUNTIME_DIM, f"of {found[0]} beside known sizes") if found else None


def written(desc: Desc, attr: PrimitiveAttr) -> tuple[Tensor, ...]:
    """The outputs, those of attributes behind those of the operation."""
    found = list(desc.outputs)
    if attr.dropout is not None and not attr.dropout.mask_desc.is_zero:
        found.append(Tensor(Arg.DROPOUT_MASK, "mask", attr.dropout.mask_desc, "", output=True))
    for argument, spec in attr.scales.items():
        if spec.computed:
            own = spec.desc(desc.quantized(argument).dims)
            found.append(Tensor(Arg.SCALES | argument, "scales", own, "", output=True))
    return tuple(found)
