"""How products of a sparse matrix and a dense one are planned."""

from __future__ import annotations

from dataclasses import replace

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.kernels.matmul import sparse as matmul_sparse
from dnnl.kernels.matmul import sparse_weights
from dnnl.kernels.matmul.sparse import SparseMatmulConf
from dnnl.language.case import CaseValues
from dnnl.primitives.implementation import Plan, laid_out_as, plan_forward
from dnnl.primitives.matrices import Matrices
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.encoding import Coo, Csr
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc


def sparse(case: CaseValues, number: int) -> MemoryDesc:
    """The descriptor of the sparse source or weights of a case."""
    dims = case.shapes.padded[number]
    made: MemoryDesc = case["encoding"][number].desc(dims, case.part("dt", number))
    return made


def plan_sparse(desc: Matrices, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    """Plan a product one factor of which is sparse; dense matrices left `any` are row-major."""
    given = {"src_desc": desc.src_desc, "weights_desc": desc.weights_desc}
    for name, own in (*given.items(), ("dst_desc", desc.dst_desc), ("bias_desc", desc.bias_desc)):
        if own.encoding is not None and not isinstance(own.encoding, Csr | Coo):
            return Refusal(Reason.LAYOUT, f"{name} {own} in a product of sparse matrices")
    if desc.dst_desc.encoding or desc.bias_desc.encoding:
        return Refusal(Reason.LAYOUT, "dst and bias of a sparse product are dense")
    sparse = [name for name, own in given.items() if own.encoding is not None]
    if len(sparse) > 1:
        return Refusal(Reason.LAYOUT, "src and weights are both sparse; one of them may be")
    names = (*given, "dst_desc", "bias_desc")
    decided = replace(
        desc,
        **{
            name: laid_out_as(own, ())
            for name in names
            if (own := getattr(desc, name)).format_kind is FormatKind.any
        },
    )

    def asked(attributes: Attributes) -> SparseMatmulConf:
        return SparseMatmulConf(
            decided.src_desc,
            decided.weights_desc,
            decided.bias_desc,
            decided.dst_desc,
            attributes.post_ops,
        )

    def by_rows(attributes: Attributes) -> SparseMatmulConf | Refusal:
        refusal = attributes.quantization.refuse({})
        return refusal or matmul_sparse.configure(asked(attributes))

    def by_columns(attributes: Attributes) -> sparse_weights.SparseWeightsConf | Refusal:
        refusal = attributes.quantization.refuse({})
        return refusal or sparse_weights.configure(asked(attributes), isa)

    if sparse == ["src_desc"]:
        return plan_forward(decided, attr, isa, by_rows, matmul_sparse.build)
    return plan_forward(decided, attr, isa, by_columns, sparse_weights.build)
