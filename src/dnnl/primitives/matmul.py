"""Matrix multiplication."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.epilogue.stochastic import ROUNDED
from dnnl.codegen.ir.kernel import Reason, Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.matmul import exact, vector
from dnnl.kernels.matmul import matmul as kernel
from dnnl.kernels.matmul.problem import MatmulProblem
from dnnl.kernels.product.base.types import narrowed
from dnnl.language.case import INVALID, CaseValues, tensor
from dnnl.language.encodings import ENCODING, GROUPED
from dnnl.language.errors import BadValue
from dnnl.language.options import (
    ATTRIBUTES,
    BIA_DT,
    BIA_MASK,
    DTAG,
    PRODUCT_DT,
    STAG,
    WTAG,
    Driver,
    auxiliary,
    operands,
    strides,
)
from dnnl.language.problem import Dims
from dnnl.language.values import Parts, integer, several
from dnnl.primitives.checks import spelled
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    laid_out_as,
    plan_forward,
    plan_nest,
    refuse_attr,
    resolve_dropout,
    resolve_post_ops,
)
from dnnl.primitives.matmul_grouped import (
    case_contents,
    case_tensors,
    check_groups,
    group_count,
    is_grouped,
    plan_grouped,
)
from dnnl.primitives.matmul_sparse import plan_sparse, sparse
from dnnl.primitives.matrices import Matrices
from dnnl.primitives.operation import FORWARD, Operation
from dnnl.primitives.weighted import bare, order_hint, quantization_of, weighted_roles
from dnnl.reference.matmul import SPECIFICATION
from dnnl.types.arg import Arg, name_of
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType, any_of
from dnnl.types.encoding import Coo, Csr, Packed
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import broadcasts

_SUPPORTED = (
    "post_ops", "scales", "zero_points", "precomputed_reductions", "dropout", "rounding_mode",
)  # fmt: skip


@dataclass(frozen=True, init=False)
class MatmulDesc(Matrices):
    """dst[.., m, n] = bias + sum over k of src[.., m, k] * weights[.., k, n].

    All have the same number of dimensions, 2 to 12; a batch dimension of src or weights may be 1
    and is then broadcast; each dimension of bias is 1 or dst's. Arguments SRC, WEIGHTS, BIAS, DST;
    every layout may be ``any``, transposed matrices are layouts. Floats and bytes are multiplied as
    oneDNN does; s32, u32, s64 or u64, all of one type, wrap.

    Dims, strides and offsets of plain layouts may be RUNTIME_DIM: one primitive serves all of them.
    Weights of known sizes may be ``any`` as well.
    """

    def __init__(
        self,
        src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        bias_desc: MemoryDesc | None = None,
    ) -> None:
        bias = bias_desc if bias_desc is not None else MemoryDesc.zero()
        self._fill(src_desc=src_desc, weights_desc=weights_desc, dst_desc=dst_desc, bias_desc=bias)

    def check(self) -> None:
        """The sizes of the tensors agree."""
        if is_grouped(self):
            check_groups(self)
            return
        src, weights, dst = self.src_desc.dims, self.weights_desc.dims, self.dst_desc.dims
        if len(src) < 2:
            raise InvalidArguments("src_desc", src, "expected at least (M, K)")
        for name, dims in (("weights_desc", weights), ("dst_desc", dst)):
            if len(dims) != len(src):
                rule = f"expected {len(src)} dimensions, as src has"
                raise InvalidArguments(name, dims, rule, "reshape adds dimensions of size 1")
        if weights[-2] != src[-1]:
            rule = f"dimension {len(src) - 2} must be K = {src[-1]}, the last one of src"
            raise InvalidArguments("weights_desc", weights, rule)
        expected = (*map(_broadcast, src[:-2], weights[:-2]), src[-2], weights[-1])
        if dst != expected:
            rule = f"src {src} times weights {weights} is {expected}"
            hint = order_hint(self.dst_desc, self.bias_desc, expected)
            raise InvalidArguments("dst_desc", dst, rule, hint)
        bias = self.bias_desc
        if not bias.is_zero and not (
            bias.ndims == len(dst) and all(map(broadcasts, bias.dims, dst))
        ):
            rule = f"each dimension must be 1 or that of dst, which is {dst}"
            raise InvalidArguments("bias_desc", bias.dims, rule)

    @property
    def auxiliary(self) -> str:
        """The dims of src and of weights that only the execution knows, a bit for each."""
        masks = [
            sum(1 << d for d, size in enumerate(desc.dims) if size == RUNTIME_DIM)
            for desc in (self.src_desc, self.weights_desc)
        ]
        return f"runtime_dims_masks:{masks[0]}:{masks[1]}" if any(masks) else ""

    def size_name(self, argument: int, dim: int, letter: str) -> str:
        """The n of a product is no batch."""
        return "columns" if letter == "n" else letter

    @property
    def problem(self) -> str:
        """The dims of src, and of weights, or those of one group."""
        if is_grouped(self):
            columns = self.weights_desc.dims[-1]
            return f"{spelled(self.src_desc.dims)}:{spelled((self.src_desc.dims[1], columns))}"
        return f"{spelled(self.src_desc.dims)}:{spelled(self.weights_desc.dims)}"


def _broadcast(a: int, b: int) -> int:
    """The extent of a batch dimension; -1 where the operands do not agree."""
    if b in (a, 1):
        return a
    return b if a == 1 else -1


def _brgemm(desc: MatmulDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr, *_SUPPORTED)
    refusal = refusal or _refuse_rounding(desc, attr) or _refuse_encodings(desc)
    if refusal is not None:
        return refusal
    problem = kernel.resolve(_problem(desc, attr, isa), isa)
    problem = replace(
        problem,
        post_ops=resolve_post_ops(problem.post_ops, problem.dst),
        dropout=resolve_dropout(attr.dropout, problem.dst),
        stochastic=bool(attr.rounding_modes),
        reductions=attr.precomputed_reductions.get(Arg.SRC),
    )
    conf = kernel.configure(problem, isa)
    if isinstance(conf, Refusal):
        return conf
    decided = _decided(desc, problem)
    return Plan(decided, problem.post_ops, Recipe(conf, isa, kernel.build), conf.scratchpad)


def _decided(desc: MatmulDesc, problem: MatmulProblem) -> MatmulDesc:
    """The description with the layouts of a problem; weights retain their compensation."""
    compensated = desc.weights_desc.compensation is not None
    weights = desc.weights_desc if compensated else problem.weights
    return desc.laid_out(
        src_desc=problem.src,
        weights_desc=weights,
        dst_desc=problem.dst,
        bias_desc=problem.bias,
    )


def _refuse_encodings(desc: MatmulDesc) -> Refusal | None:
    """Why tensors of several buffers cannot be multiplied by dense tiles, or None: weights may be
    packed."""
    for given in desc.tensors:
        packed = given.argument == Arg.WEIGHTS and isinstance(given.desc.encoding, Packed)
        if given.desc.encoding is not None and not packed:
            return Refusal(Reason.LAYOUT, f"{given.name} {given.desc}; weights may be packed")
    return None


def _refuse_rounding(desc: MatmulDesc, attr: PrimitiveAttr) -> Refusal | None:
    """Why results cannot be rounded stochastically, or None."""
    kind = desc.dst_desc.data_type
    for argument in attr.rounding_modes:
        if argument != Arg.DST:
            return Refusal(Reason.ATTRIBUTE, f"rounding_mode of {name_of(argument)}")
        if kind.is_integer or kind.bits < 8:
            rule = f"it takes {any_of((*ROUNDED, DataType.f32, DataType.f64))}"
            return Refusal(Reason.DATA_TYPE, f"stochastic rounding to {kind}; {rule}")
    return None


def _problem(desc: MatmulDesc, attr: PrimitiveAttr, isa: Isa) -> MatmulProblem:
    return MatmulProblem(
        desc.src_desc,
        bare(desc.weights_desc),
        desc.bias_desc,
        desc.dst_desc,
        tuple(attr.post_ops),
        quantization_of(attr, desc.weights_desc),
        narrowed(attr, isa, desc.src_desc.data_type, desc.weights_desc.data_type),
    )


def _nest(desc: MatmulDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    src, weights, dst = (
        laid_out_as(given, ()) if given.format_kind is FormatKind.any else given
        for given in (desc.src_desc, desc.weights_desc, desc.dst_desc)
    )
    decided = MatmulDesc(src, weights, dst, desc.bias_desc)

    configure = partial(exact.configure, src, weights, desc.bias_desc, dst)
    return plan_nest(decided, attr, isa, configure, exact.build)


def _fold(desc: MatmulDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    if desc.weights_desc.format_kind is FormatKind.any and desc.dst_desc.dims[-1] > 1:
        return Refusal(Reason.LAYOUT, "open weights, which become panels")
    src, weights, dst = (
        laid_out_as(given, ()) if given.format_kind is FormatKind.any else given
        for given in (desc.src_desc, desc.weights_desc, desc.dst_desc)
    )
    decided = MatmulDesc(src, weights, dst, desc.bias_desc)

    def configure(attributes: Attributes) -> vector.VectorProductConf | Refusal:
        bias, post_ops = desc.bias_desc, attributes.post_ops
        refusal = attributes.quantization.refuse({})
        return refusal or vector.configure(src, weights, bias, dst, post_ops, isa)

    return plan_forward(decided, attr, isa, configure, vector.build)


def _dim_masks(text: str) -> Parts:
    """The masks of src and weights; 0 is one that is not given."""
    given = several(lambda part: integer(part or "0"), (1, 2))(text)
    return Parts((*given.items, 0)[:2])


def _open_dims(case: CaseValues) -> tuple[int, int, int]:
    """The masks of the dims of src, weights and dst that only the execution knows."""
    src, weights = case["runtime_dims_masks"].items
    rows, columns = (1 << (len(case.shapes.padded[0]) - n) for n in (2, 1))
    batch = (src | weights) & (rows - 1)
    return src, weights, batch | src & rows | weights & columns


def _invalid(case: CaseValues) -> str | None:
    """What is known at execution only has no layout to choose."""
    tags = case["stag"], case["wtag"], case["dtag"]
    chosen = any(mask and tag == "any" for mask, tag in zip(_open_dims(case), tags, strict=True))
    return INVALID if chosen else None


def _complete(desc: MatmulDesc, case: CaseValues) -> MatmulDesc:
    """With what only execution knows left open."""
    src, weights, dst = _open_dims(case)
    if not (src or weights):
        return desc

    def opened(mask: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(RUNTIME_DIM if mask >> d & 1 else size for d, size in enumerate(sizes))

    padded = case.shapes.padded
    bias = desc.bias_desc
    if not bias.is_zero:
        varying = sum(1 << d for d, size in enumerate(bias.dims) if size != 1)
        bias = MemoryDesc(opened(dst & varying, bias.dims), bias.data_type)
    return MatmulDesc(
        _src(case, opened(src, padded[0])),
        _weights(case, opened(weights, padded[1])),
        _dst(case, opened(dst, _dims(case))),
        bias,
    )


def _src(case: CaseValues, dims: tuple[int, ...] | None = None) -> MemoryDesc:
    if case["grouped"]:
        return case_tensors(case)[0]
    if case["encoding"][0].name:
        return sparse(case, 0)
    strides = case.strides(0, "stag")
    return tensor(dims or case.shapes.padded[0], case.part("dt", 0), case["stag"], strides)


def _weights(case: CaseValues, dims: tuple[int, ...] | None = None) -> MemoryDesc:
    if case["grouped"]:
        return case_tensors(case)[1]
    if case["encoding"][1].name:
        return sparse(case, 1)
    strides = case.strides(1, "wtag")
    return tensor(dims or case.shapes.padded[1], case.part("dt", 1), case["wtag"], strides)


def _dims(case: CaseValues) -> tuple[int, ...]:
    """The dims of dst."""
    src, weights = case.shapes.padded
    if len(src) < 2 or src[-1] != weights[-2]:
        raise BadValue(f"problem {case.problem.text!r}: the inner sizes differ")
    if len(weights) > len(src):
        rule = "the weights have a dim more than src, which goes with --grouped"
        raise BadValue(f"problem {case.problem.text!r}: {rule}")
    batch = tuple(0 if 0 in pair else max(pair) for pair in zip(src, weights, strict=True))
    return (*batch[:-2], src[-2], weights[-1])


def _bias(case: CaseValues) -> MemoryDesc | None:
    if case["bia-dt"] is DataType.undef:
        return None
    if case["grouped"]:
        return MemoryDesc((group_count(case), case.shapes.tensors[1][-1]), case["bia-dt"])
    mask: int = case["bia_mask"]
    dims = [size if mask >> d & 1 else 1 for d, size in enumerate(_dims(case))]
    return MemoryDesc(dims, case["bia-dt"])


def _dst(case: CaseValues, dims: tuple[int, ...] | None = None) -> MemoryDesc:
    if case["grouped"]:
        return case_tensors(case)[2]
    return tensor(dims or _dims(case), case.part("dt", 2), case["dtag"], case.strides(2, "dtag"))


def _mask(case: CaseValues, argument: str, name: str, ndims: int) -> int | None:
    """Output channels are the last dimension, input channels the one before."""
    if name in ("per_oc", "per_dim_1"):
        return 1 << (ndims - 1)
    if name == "per_ocic":
        return 3 << (ndims - 2)
    if name.startswith("per_dim"):
        rule = "--matmul does not have this name"
        raise InvalidArguments("mask", name, rule, "a mask may be given as a number")
    return None


def _flops(desc: MatmulDesc) -> int:
    """Twice the products, those of the zeros of a sparse factor left out."""
    src, weights = desc.src_desc, desc.weights_desc
    if isinstance(src.encoding, Csr | Coo):
        return 2 * src.encoding.nnz * weights.dims[-1]
    if isinstance(weights.encoding, Csr | Coo):
        return 2 * weights.encoding.nnz * src.dims[0]
    if is_grouped(desc):
        return 2 * src.nelems() * weights.dims[-1]
    return 2 * desc.dst_desc.nelems() * src.dims[-1]


def _bias_mask(bias: MemoryDesc) -> str:
    """The dimensions along which a bias varies, a bit for each."""
    return f"_mask{sum(1 << d for d, extent in enumerate(bias.dims) if extent != 1)}"


MatmulDesc.operation = Operation(
    kind="matmul",
    summary="matmul: product of matrices",
    driver=Driver(
        "matmul",
        (
            PRODUCT_DT, STAG.but("any"), WTAG, DTAG,
            ENCODING, GROUPED, strides(operands, 3),
            auxiliary("runtime_dims_masks", "0:0", _dim_masks), *ATTRIBUTES, BIA_DT,
            BIA_MASK,
        ),
        Dims(2, 2, " by ", deeper=True),
    ),
    roles=weighted_roles(
        (_src, _weights, _bias, _dst), ("*mk", "*kn", "*mn", "*mn"), _bias_mask
    ),
    parameters=(),
    flops=_flops, contents=case_contents,
    formerly={"gemm": "", "gemm_api": ""},
    sums=True,
    compensated=(Arg.WEIGHTS,),
    channels=-1,
    reference=SPECIFICATION,
    examples=("--bia-dt=f32 --wtag=ab,ba 20x30:30x17", "--dt=s64 2x20x30:1x30x17",
        "--dt=f32,bf16 --encoding=csr+0.7::,coo+0.7:: --wtag=ab,ba --dtag=ab 20x31:31x150",
        "--dt=f32,f16 --encoding=:csr+0.8:,:coo+0.8: --stag=ab,ba --dtag=ab 37x31:31x20",
        "--dt=s8:s8:s32,f32:s8:f32 --encoding=:packed+0.6: --stag=ab,ba --dtag=ab 7x150:150x70",
        "--dt=f32,bf16,u8:s8:f32 --grouped=0:5:3+0+20+1+16 --bia-dt=f32 --wtag=any,abc 40x36:36x70",
        "--dt=f32,bf16 --grouped=1:4:7+0+20+4 17x31:31x40"),
    implementations=(
        Implementation("fold", _fold, FORWARD),
        Implementation("brgemm", _brgemm, FORWARD), Implementation("nest", _nest, FORWARD),
        Implementation("brgemm", _brgemm, FORWARD, encoded=True),
        Implementation("sparse", plan_sparse, FORWARD, encoded=True),
        Implementation("grouped", plan_grouped, FORWARD, encoded=True),
    ),
    invalid=_invalid,
    complete=_complete,
    mask=_mask,
)  # fmt: skip
