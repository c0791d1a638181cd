"""The phases of convolution, matmul and inner product: copies and reductions before, the products
with their epilogues, a copy behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.epilogue.post_ops import Epilogue
from dnnl.codegen.epilogue.product_epilogue import Depth, ProductEpilogue
from dnnl.codegen.epilogue.quantization import Quantizer
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, broadcast
from dnnl.codegen.product.multiply import as_f32
from dnnl.kernels.product.base.sums import Segments
from dnnl.kernels.product.loops.form import Product
from dnnl.kernels.product.loops.loops import emit_product
from dnnl.kernels.product.pack.on_the_fly import BoundPacking, IndexOf
from dnnl.kernels.product.pack.pairs import Narrow, emit_flags, narrow
from dnnl.kernels.product.pack.up_converted import emit_up_conversion
from dnnl.kernels.product.plan.computed_scales import emit_scales
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.kernels.shared.copies import emit_copies, emit_copy
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType

SCALED_SUMS = as_f32()
"""The representation of scaled sums of segments: f32."""

AnyProduct = ProductConf[Any]
AnyConf = TypeVar("AnyConf", bound=AnyProduct)


@dataclass(frozen=True)
class Indices:
    """The indices of the values that belong to a result, in axes of dst: those of bias, those of
    src and weights with zero along summed dimensions, and those of row and column sums."""

    bias: tuple[Affine, ...]
    src: tuple[Affine, ...]
    weights: tuple[Affine, ...]
    row_sums: tuple[Affine, ...] = ()
    column_sums: tuple[Affine, ...] = ()


def finish(
    conf: AnyProduct, arguments: Arguments, dst: Operand, at: Indices, depth: Depth
) -> ProductEpilogue:
    """The epilogue that computes ``dst`` from sums of this depth."""
    here, given, sums = conf.copy_out is None, conf.problem.bias, conf.compensation
    post_ops = conf.problem.post_ops if here or conf.quantization.computed is not None else ()
    bias = None
    if not given.is_zero:
        bias = Operand(arguments.slot(Arg.BIAS), given, broadcast(given, at.bias))
    tensors = {
        conf.factors[0]: Operand(0, conf.src[1], at.src),
        conf.factors[1]: Operand(0, conf.weights[1], at.weights),
        int(Arg.DST): dst,
    }
    quantization = conf.quantization.of_arguments(tensors if here else conf.factors)
    whole = conf.segment == 0
    row_sums = column_sums = weight_sums = None
    if sums.places is not None:
        quantization = quantization.without_zero_points(conf.factors[0])
        slot, desc = sums.places
        index = broadcast(desc, at.column_sums, desc.dims)
        column_sums = Operand(arguments.slot(slot), desc, index)
    if sums.rows is not None and whole:
        row_sums = sums.rows.operand(arguments, at.row_sums)
    if sums.columns is not None:
        weight_sums = sums.columns.operand(arguments, at.weights)
    return ProductEpilogue(
        conf.multiply if whole else SCALED_SUMS,
        conf.core,
        dst,
        bias,
        Epilogue(post_ops, dst, arguments),
        Quantizer(quantization, tensors, arguments, requantizes=True),
        conf.factors,
        depth,
        row_sums,
        column_sums,
        weight_sums,
    )


def segments(
    conf: AnyProduct, arguments: Arguments, dst: Operand, at: Indices, depth: Depth, axis: Axis
) -> Segments | None:
    """The segments along ``axis``, each of this depth, of a product that has some; else None."""
    if not conf.segment:
        return None
    tensors = {
        conf.factors[0]: Operand(0, conf.src[1], at.src),
        conf.factors[1]: Operand(0, conf.weights[1], at.weights),
    }
    rows = conf.compensation.rows
    sums = None if rows is None else rows.operand(arguments, at.row_sums)
    end = ProductEpilogue(
        conf.multiply,
        DataType.f32,
        dst,
        None,
        Epilogue((), dst, arguments),
        Quantizer(conf.per_segment, tensors, arguments),
        conf.factors,
        depth,
        sums,
    )
    return Segments(axis, end)


def packing(conf: AnyProduct, arguments: Arguments, at: IndexOf) -> BoundPacking | None:
    """The on-the-fly packing of weights at these indices, or None."""
    return None if conf.packing is None else conf.packing.bound(arguments, at)


def narrow_path(conf: AnyProduct, arguments: Arguments, src: Operand, isa: Isa) -> Narrow | None:
    """The path for panels of small weights through a product that reads ``src``, or None."""
    given = conf.flags, conf.src, conf.weights[1], src, conf.multiply
    return narrow(*given, arguments, isa)


def build(
    name: str,
    conf: AnyConf,
    isa: Isa,
    products: Callable[[AnyConf, Isa, Arguments], Iterable[Product]],
) -> Kernel:
    """The kernel with the phases of `emit`."""
    module, arguments = Module(name, isa), Arguments()
    phases = emit(module, conf, arguments, products)
    return Kernel(module, tuple(phases), arguments.ids)


def emit(
    module: Module,
    conf: AnyConf,
    arguments: Arguments,
    products: Callable[[AnyConf, Isa, Arguments], Iterable[Product]],
    name: str = "",
) -> list[Phase]:
    """Write the copies in, the sums that compensate products, the products with their epilogues,
    and the copy out; ``name`` tells those of several products in a module apart."""
    name, isa = name or module.ir.name, module.isa
    phases = emit_copies(module, name, conf.copies_in, arguments, conf.dequantized)
    if conf.decoded is not None:
        symbol = f"{name}_decoded__{conf.weights[1].data_type}__{isa.lanes}x1__{isa.name}"
        phases.append(conf.decoded.emit(module, symbol, conf.weights, arguments))
    if conf.unfolded is not None:
        phases.append(conf.unfolded.emit(module, name, arguments))
    phases.extend(conf.compensation.emit(module, name, arguments))
    if conf.border is not None and not conf.border.in_bands:
        phases.append(conf.border.emit(module, arguments))
    if conf.flags is not None:
        symbol = f"{name}_flags__{conf.weights[1].data_type}__{isa.lanes}x1__{isa.name}"
        phases.append(emit_flags(module, symbol, conf.weights, conf.flags, arguments))
    if conf.up_converted is not None:
        symbol = f"{name}_wide__{conf.src[1].data_type}__{isa.lanes}x1__{isa.name}"
        phases.append(
            emit_up_conversion(module, symbol, conf.src, conf.up_converted, conf.flags, arguments)
        )
    tile = conf.blocking.tile
    types = "_".join(
        dict.fromkeys(str(part[1].data_type) for part in (conf.src, conf.weights, conf.dst))
    )
    for number, product in enumerate(products(conf, isa, arguments)):
        symbol = (
            f"{name}{number or ''}__{types}__{tile.rows}x{tile.vectors * isa.lanes}__{isa.name}"
        )
        phases.append(emit_product(module, symbol, product))
    if conf.copy_out is not None:
        given, dst = conf.copy_out
        problem, computed = conf.problem, conf.quantization.computed
        post_ops = problem.post_ops
        if computed is not None:
            entry = f"{name}_scales__{computed.data_type}__{isa.lanes}x1__{isa.name}"
            phases.append(emit_scales(module, entry, given, dst[1].data_type, computed, arguments))
            post_ops = ()
        symbol = f"{name}_out__{dst[1].data_type}__{isa.lanes}x1__{isa.name}"
        phases.append(
            emit_copy(
                module,
                symbol,
                given,
                dst,
                arguments,
                post_ops,
                conf.quantization.of_arguments((Arg.DST,)),
                storage(conf.core).element,
                problem.dropout,
                stochastic=problem.stochastic,
                requantizes=True,
            )
        )
    return phases
