"""Numbers that are stored as integers: x scale + shift, rounded and saturated."""

from __future__ import annotations

from dnnl.codegen.conversion.convert import Storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Value


def quantized(form: Storage, scale: float, shift: float) -> Storage:
    """Integers of a type that stand for other numbers."""

    def to_core(e: Emitter, value: Value) -> Value:
        whole = form.to_core(e, value)
        moved = e.b.fsub(whole, vector.splat_constant(whole.type, shift)) if shift else whole
        return e.b.fmul(moved, vector.splat_constant(whole.type, 1 / scale))

    def from_core(e: Emitter, value: Value) -> Value:
        factor, offset = (vector.splat_constant(value.type, own) for own in (scale, shift))
        return form.from_core(e, vector.multiply_add(e, value, factor, offset))

    return Storage(form.element, to_core, from_core)
