"""Attention: softmax(query key^T) value, without a matrix of all scores in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dnnl.codegen.ir.kernel import Reason, Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import multiply
from dnnl.errors import InvalidArguments
from dnnl.kernels.attention import backward, forward, unit, unit_backward
from dnnl.kernels.attention.problem import (
    AttentionConf,
    GradientConf,
    UnitConf,
    UnitGradientConf,
)
from dnnl.kernels.shared.types import FLOATS, refuse_types
from dnnl.language.case import CaseValues
from dnnl.language.case import tensor as tensor_of
from dnnl.language.options import (
    ATTRIBUTES,
    DDT,
    DIR,
    DTAG,
    Driver,
    auxiliary,
    sources,
    tags,
    types,
)
from dnnl.language.problem import Dims
from dnnl.language.values import number, one_of, several, text
from dnnl.primitives.checks import check_dims, check_forward, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, refuse_attr
from dnnl.primitives.operation import BACKWARD_DATA, FORWARD, TRAINING, Operation, Parameter, Role
from dnnl.primitives.parameters import Name, Real
from dnnl.reference.attention import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM, PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import broadcasts, is_known

_MASKINGS = ("none", "causal", "causal_last")
_MASKED_ROWS = ("zero", "nan")
_MANY = 8
"""Query rows for which keys and values are packed."""
MOST_ELEMENTS = 4096
"""The elements of rows of which a block is in the caches of a thread."""


@dataclass(frozen=True)
class AttentionDesc(Desc):
    """dst = softmax(scale * query key^T + mask) value, for each head of each batch element.

    query is [N, H, L, E], key [N, G, S, E], value [N, G, S, V] and dst [N, H, L, V]; each of the G
    heads of keys and values serves H / G heads of queries in a row. mask is broadcast to
    [N, H, L, S], or absent. ``masking`` is

    - ``none``: every row takes all keys;
    - ``causal``: row l takes the first l + 1 keys;
    - ``causal_last``: the last row takes all keys, and row l the first l + 1 + S - L.

    A row in which no key takes part is 0, or NaN if ``masked_rows`` is "nan" in place of "zero" and
    there are keys; its gradients are 0.

    Arguments SRC_0 (query), SRC_1 (key), SRC_2 (value), SRC_3 (mask) and DST, whose layout may be
    ``any``; in training also DST_1, f32 [N, H, L]: the logarithm of the sum of the exponentials of
    the scores of each row.
    """

    prop_kind: PropKind
    query_desc: MemoryDesc
    key_desc: MemoryDesc
    value_desc: MemoryDesc
    mask_desc: MemoryDesc
    dst_desc: MemoryDesc
    logsum_desc: MemoryDesc
    masking: str = _MASKINGS[0]
    scale: float = 1.0
    masked_rows: str = _MASKED_ROWS[0]
    diff_dst_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_query_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_key_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)
    diff_value_desc: MemoryDesc = field(default_factory=MemoryDesc.zero)

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        query_desc: MemoryDesc,
        key_desc: MemoryDesc,
        value_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        *,
        mask_desc: MemoryDesc | None = None,
        logsum_desc: MemoryDesc | None = None,
        masking: str = _MASKINGS[0],
        scale: float = 1.0,
        masked_rows: str = _MASKED_ROWS[0],
    ) -> AttentionDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken.
        ``logsum_desc`` is row-major where it is left out in training."""
        check_forward(prop_kind)
        return cls.made(
            prop_kind=prop_kind,
            query_desc=query_desc,
            key_desc=key_desc,
            value_desc=value_desc,
            mask_desc=mask_desc,
            dst_desc=dst_desc,
            logsum_desc=logsum_desc,
            masking=masking,
            scale=scale,
            masked_rows=masked_rows,
        )

    @classmethod
    def backward(
        cls,
        query_desc: MemoryDesc,
        key_desc: MemoryDesc,
        value_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        diff_query_desc: MemoryDesc,
        diff_key_desc: MemoryDesc,
        diff_value_desc: MemoryDesc,
        *,
        mask_desc: MemoryDesc | None = None,
        logsum_desc: MemoryDesc | None = None,
        masking: str = _MASKINGS[0],
        scale: float = 1.0,
        masked_rows: str = _MASKED_ROWS[0],
    ) -> AttentionDesc:
        """Describe the gradients of a forward computation; raises InvalidArguments where the rules
        are broken. ``logsum_desc`` is row-major where it is left out."""
        return cls.made(
            prop_kind="backward_data",
            query_desc=query_desc,
            key_desc=key_desc,
            value_desc=value_desc,
            mask_desc=mask_desc,
            dst_desc=dst_desc,
            logsum_desc=logsum_desc,
            masking=masking,
            scale=scale,
            masked_rows=masked_rows,
            diff_dst_desc=diff_dst_desc,
            diff_query_desc=diff_query_desc,
            diff_key_desc=diff_key_desc,
            diff_value_desc=diff_value_desc,
        )

    def __post_init__(self) -> None:
        infers = self.prop_kind in (PropKind.forward_inference, "forward_inference")
        given = all(isinstance(own, MemoryDesc) for own in (self.query_desc, self.logsum_desc))
        if not infers and given and self.logsum_desc.is_zero:
            self._set("logsum_desc", MemoryDesc(self.query_desc.dims[:-1], "f32"))
        super().__post_init__()

    def check_dims(self) -> None:
        """Raise InvalidArguments unless the tensors have the dims that the class says."""
        query, key, value = self.query_desc.dims, self.key_desc.dims, self.value_desc.dims
        for name, dims in (("query_desc", query), ("key_desc", key), ("value_desc", value)):
            if len(dims) != 4:
                raise InvalidArguments(name, dims, "expected batch, heads, rows and their elements")
        heads, served = query[1], key[1]
        rule = "batch and elements of query, with rows and heads of its own"
        check_dims("key_desc", self.key_desc, (query[0], *key[1:3], query[3]), rule)
        known = RUNTIME_DIM not in (heads, served) and is_known(heads) and is_known(served)
        if known and (heads % served if served else heads):
            rule = f"expected a number of heads that divides the {heads} of query"
            raise InvalidArguments("key_desc", key, rule)
        rule = "batch, heads and rows of key"
        check_dims("value_desc", self.value_desc, (*key[:3], value[3]), rule)
        rule = "batch, heads and rows of query with the elements of value"
        check_dims("dst_desc", self.dst_desc, (*query[:3], value[3]), rule)
        mask, whole = self.mask_desc.dims, (*query[:3], key[2])
        if not self.mask_desc.is_zero:
            fits = len(mask) == len(whole) and all(
                broadcasts(own, size) for own, size in zip(mask, whole, strict=True)
            )
            if not fits:
                rule = f"each dimension must be 1 or that of the scores, which are {whole}"
                raise InvalidArguments("mask_desc", mask, rule)
        if self.has(self.operation.role(Arg.DST_1)):
            rule = "batch, heads and rows of query"
            check_dims("logsum_desc", self.logsum_desc, query[:3], rule)
        for name in ("dst", "query", "key", "value"):
            if self.has(self.operation.role(Arg.DIFF_DST)):
                own, gradient = getattr(self, f"{name}_desc"), getattr(self, f"diff_{name}_desc")
                check_dims(f"diff_{name}_desc", gradient, own.dims, f"the dims of {name}")

    def check(self) -> None:
        """Raise InvalidArguments unless logarithms are f32."""
        if not self.logsum_desc.is_zero and self.logsum_desc.data_type is not DataType.f32:
            raise InvalidArguments("logsum_desc", str(self.logsum_desc), "logarithms are f32")

    def complete_typical(self, dims: dict[int, list[int]]) -> None:
        """Each head of keys serves as many heads of queries."""
        heads, served = dims[Arg.SRC_0][1], dims[Arg.SRC_1][1]
        if served and heads % served:
            for argument, own in dims.items():
                if _SIZES[argument][1] == "h" and own[1] == heads:
                    own[1] = served

    def size_name(self, argument: int, dim: int, letter: str) -> str:
        """N, H, L, E, G, S and V."""
        return _SIZES[argument][dim]

    @property
    def problem(self) -> str:
        """The dims of query, key, value, and the mask where there is one."""
        given = (self.query_desc, self.key_desc, self.value_desc, self.mask_desc)
        return ":".join(spelled(own.dims) for own in given if not own.is_zero)


_SIZES: Mapping[int, str] = {
    int(Arg.SRC_0): "nhle", int(Arg.SRC_1): "ngse", int(Arg.SRC_2): "ngsv",
    int(Arg.SRC_3): "nhls", int(Arg.DST): "nhlv", int(Arg.DST_1): "nhl",
    int(Arg.DIFF_SRC_0): "nhle", int(Arg.DIFF_SRC_1): "ngse", int(Arg.DIFF_SRC_2): "ngsv",
    int(Arg.DIFF_DST): "nhlv",
}  # fmt: skip


def _plan(desc: AttentionDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr) or _refused(desc, isa)
    if refusal is not None:
        return refusal
    conf = _conf(desc)
    if desc.propagation.is_forward and _suits_unit(desc, isa):
        own = UnitConf.of(conf)
        return Plan(desc, (), Recipe(own, isa, unit.build), own.scratchpad)
    if desc.propagation.is_forward:
        return Plan(desc, (), Recipe(conf, isa, forward.build))
    gradients = (
        desc.diff_dst_desc, desc.diff_query_desc, desc.diff_key_desc, desc.diff_value_desc,
    )  # fmt: skip
    if _suits_unit(desc, isa):
        on_unit = UnitGradientConf.of(conf, gradients, isa)
        return Plan(desc, (), Recipe(on_unit, isa, unit_backward.build), on_unit.scratchpad)
    gradient = GradientConf.of(conf, gradients, isa)
    return Plan(desc, (), Recipe(gradient, isa, backward.build), gradient.scratchpad)


def types_of(isa: Isa) -> frozenset[DataType]:
    """The types of floats of which attention takes less time than two products and a softmax."""
    if not isa.thread_memory:
        return frozenset()
    dot = multiply(isa, DataType.bf16, DataType.bf16)
    narrow = dot is not None and dot.group > 1 and not _has_unit(isa)
    return FLOATS - {DataType.bf16} if narrow else FLOATS


def _has_unit(isa: Isa) -> bool:
    dot = multiply(isa, DataType.bf16, DataType.bf16, tiled=True)
    return dot is not None and dot.tiles is not None


def _suits_unit(desc: AttentionDesc, isa: Isa) -> bool:
    """Whether a matrix unit multiplies: rows of bf16 that are more than few."""
    sources = [desc.query_desc, desc.key_desc, desc.value_desc]
    if not desc.propagation.is_forward:
        sources.append(desc.diff_dst_desc)
    kinds = {own.data_type for own in sources}
    rows = desc.query_desc.dims[2]
    many = not is_known(rows) or rows >= _MANY
    return kinds == {DataType.bf16} and _has_unit(isa) and many


def _refused(desc: AttentionDesc, isa: Isa) -> Refusal | None:
    """Why there is no kernel."""
    if not isa.thread_memory:
        return Refusal(Reason.ISA, f"{isa.name} has no thread memory")
    for tensor in desc.tensors:
        own = tensor.desc
        refusal = refuse_types(own, allowed=FLOATS)
        if refusal is not None:
            return refusal
        if own.inner_blocks or (own.dims[-1] != 1 and own.strides[-1] != 1):
            rule = f"{tensor.field} = {own}; elements of a row are adjacent"
            return Refusal(Reason.LAYOUT, rule)
    if not (is_known(desc.query_desc.dims[1]) and is_known(desc.key_desc.dims[1])):
        return Refusal(Reason.RUNTIME_DIM, "the number of heads")
    for own in (desc.query_desc, desc.value_desc):
        size = own.dims[3]
        if not is_known(size):
            return Refusal(Reason.RUNTIME_DIM, "the elements of a row")
        if size > MOST_ELEMENTS:
            return Refusal(Reason.SHAPE, f"{size} elements of a row; at most {MOST_ELEMENTS}")
    return None


def _conf(desc: AttentionDesc) -> AttentionConf:
    def there(own: MemoryDesc) -> MemoryDesc | None:
        return None if own.is_zero else own

    infers = desc.propagation is PropKind.forward_inference
    logsum = None if infers else desc.logsum_desc
    return AttentionConf(
        desc.query_desc, desc.key_desc, desc.value_desc, there(desc.mask_desc), desc.dst_desc,
        logsum, desc.masking, desc.scale, desc.masked_rows == "nan",
    )  # fmt: skip


def _source(place: int) -> Callable[[CaseValues], MemoryDesc | None]:
    """Source ``place`` of a case; the mask may be absent."""

    def desc(case: CaseValues) -> MemoryDesc | None:
        shapes = case.shapes.tensors
        if place >= len(shapes):
            return None
        kind = DataType.f32 if place == _MASK else case.part("sdt", place)
        return tensor_of(shapes[place], kind, case.part("stag", place))

    return desc


_MASK = 3
_BOTH = FORWARD | BACKWARD_DATA
_GRADIENTS = (
    (Arg.DIFF_SRC_0, "query"), (Arg.DIFF_SRC_1, "key"), (Arg.DIFF_SRC_2, "value"),
)  # fmt: skip


def _dst(case: CaseValues) -> MemoryDesc:
    query, _, value, *_ = case.shapes.tensors
    return tensor_of((*query[:3], value[3]), case["ddt"], case["dtag"])


def _logsum(case: CaseValues) -> MemoryDesc:
    return MemoryDesc(case.shapes.dims[:3], "f32")


AttentionDesc.operation = Operation(
    kind="attention",
    summary="attention: softmax(query key^T) value",
    driver=Driver(
        "attention",
        (
            DIR, types("sdt", "f32", sources, (1, 3, 4)), DDT,
            tags("stag", "abx", sources, several(text, (1, 3, 4))), DTAG,
            auxiliary("masking", _MASKINGS[0], one_of(*_MASKINGS), _MASKINGS),
            auxiliary("scale", "1", number),
            auxiliary("masked_rows", _MASKED_ROWS[0], one_of(*_MASKED_ROWS), _MASKED_ROWS),
            *ATTRIBUTES,
        ),
        Dims(3, 4, " by "),
    ),
    roles=(
        Role(Arg.SRC_0, "src", "query_desc", reads=_BOTH, case=_source(0)),
        Role(Arg.SRC_1, "src", "key_desc", reads=_BOTH, case=_source(1)),
        Role(Arg.SRC_2, "src", "value_desc", reads=_BOTH, case=_source(2)),
        Role(Arg.SRC_3, "src", "mask_desc", reads=_BOTH, optional=True, case=_source(_MASK)),
        Role(
            Arg.DST, "dst", "dst_desc", reads=BACKWARD_DATA, writes=FORWARD, like=("query_desc",),
            case=_dst,
        ),
        Role(
            Arg.DST_1, "logsum", "logsum_desc", reads=BACKWARD_DATA, writes=TRAINING, case=_logsum
        ),
        Role(
            Arg.DIFF_DST, "diff_dst", "diff_dst_desc", reads=BACKWARD_DATA, like=("dst_desc",),
            case=_dst,
        ),
        *(
            Role(
                argument, "diff_src", f"diff_{name}_desc", writes=BACKWARD_DATA,
                like=(f"{name}_desc",), case=_source(place),
            )
            for place, (argument, name) in enumerate(_GRADIENTS)
        ),
    ),
    parameters=(
        Parameter("masking", Name(_MASKINGS), lambda case: case["masking"], "masking"),
        Parameter("scale", Real(), lambda case: float(case["scale"]), "scale"),
        Parameter(
            "masked_rows", Name(_MASKED_ROWS), lambda case: case["masked_rows"], "masked_rows",
            usual=_MASKED_ROWS[0],
        ),
    ),
    reference=SPECIFICATION,
    examples=(
        "--masking=none,causal,causal_last 2x3x37x20:2x3x41x20:2x3x41x24",
        "--scale=0.25 --masking=none,causal 2x6x70x16:2x2x300x16:2x2x300x17:2x1x70x300",
        "--scale=0.5 --masked_rows=zero,nan 2x4x5x8:2x4x9x8:2x4x9x40:2x1x1x9",
    ),
    implementations=(Implementation("blocks", _plan, fixes=True),),
)  # fmt: skip
