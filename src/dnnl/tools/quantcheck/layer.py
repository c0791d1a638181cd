"""One layer: a product of quantized factors, or a tensor that is stored as integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from dnnl.reference.arrays import Array
from dnnl.tools.quantcheck.errors import Error
from dnnl.tools.quantcheck.scheme import Scheme, TensorReport
from dnnl.tools.quantcheck.sums import Sums, sums_of

_CELLS = 2**24  # elements of patches, at most


@dataclass(frozen=True, eq=False)
class Product:
    """``compute(src, weights)`` in float64. ``letters`` are those of the dimensions of weights:
    ``kn`` behind any others for matrices; g where there are groups, o, i and those of space. Where
    ``groups`` are within o, ``compute`` takes weights with a dimension of their own as well."""

    compute: Callable[[Array, Array], Array]
    letters: str
    groups: int = 1

    def matrices(self, src: Array, weights: Array) -> tuple[Array, Array]:
        """The same as products of matrices [G, P, K] and [G, K, N], neighbours along K being
        channels; P has not all places where these would be very many."""
        if self.letters.endswith("kn"):
            return self._batches(src, weights)
        grouped = weights
        if not self.letters.startswith("g"):
            grouped = weights.reshape(self.groups, -1, *weights.shape[1:])
        groups, outputs, channels, *taps = grouped.shape
        terms = channels * prod(taps)
        # The product with weights of one 1 for each term is what the terms are multiplied by.
        one = np.moveaxis(np.eye(terms).reshape(terms, *taps, channels), -1, 1)
        units = np.broadcast_to(one, (groups, *one.shape))
        images = max(1, min(len(src), _CELLS // max(1, terms * src[:1].size // max(1, channels))))
        seen = self.compute(
            src[:images], units[0] if groups == 1 and grouped is not weights else units
        )
        seen = np.moveaxis(seen.reshape(images, groups, terms, -1), (1, 0, 3), (0, 1, 2))
        columns = np.moveaxis(grouped, (1, 2), (-1, -2)).reshape(groups, terms, outputs)
        return seen.reshape(groups, -1, terms), columns

    @staticmethod
    def _batches(src: Array, weights: Array) -> tuple[Array, Array]:
        k, n = weights.shape[-2:]
        if prod(weights.shape[:-2]) == 1:
            return src.reshape(1, -1, k), weights.reshape(1, k, n)
        batch = np.broadcast_shapes(src.shape[:-2], weights.shape[:-2])
        whole = [np.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (src, weights)]
        return whole[0].reshape(-1, src.shape[-2], k), whole[1].reshape(-1, k, n)


@dataclass(frozen=True)
class Named:
    """The names of a tensor and of its scale."""

    tensor: str = ""
    scale: str = ""


@dataclass(frozen=True, eq=False)
class Layer:
    """dst = after(product(src, weights) + bias), as it is meant in f32. ``schemes`` say how src,
    weights and dst are stored, by these names; what has none is not quantized. ``stored`` are
    weights as integers, where they are constants; those of ``lost`` ones are all that is known."""

    name: str
    operator: str
    product: Product
    src: Array
    weights: Array
    bias: Array | None
    schemes: Mapping[str, Scheme]
    names: Mapping[str, Named]
    after: Callable[[Array], Array] = lambda values: values
    stored: Array | None = None
    lost: bool = False


@dataclass(frozen=True, eq=False)
class LayerReport:
    """What was found: of each tensor, of the sums if they are of integers, the error that the layer
    makes by itself out of exact values, and in a model the one that has ``reached`` its end."""

    name: str
    operator: str
    tensors: tuple[TensorReport, ...]
    own: Error
    sums: Sums | None = None
    reached: Error | None = None
    stored_by: Mapping[str, str] | None = None
    """Who has stored the tensor of a role, where that row tells of its scale."""

    def tensor(self, role: str) -> TensorReport | None:
        """What was found of src, weights or dst."""
        return next((each for each in self.tensors if each.role == role), None)

    @property
    def changes(self) -> tuple[TensorReport, ...]:
        """The tensors that this row is about and whose scale should change."""
        elsewhere = self.stored_by or {}
        return tuple(each for each in self.tensors if each.is_bad and each.role not in elsewhere)

    def advice(self) -> Iterator[str]:
        """Sentences of advice."""
        for each in self.changes:
            yield from each.advice()
        for each in self.tensors:
            by = (self.stored_by or {}).get(each.role)
            if each.is_bad and by:
                yield f"its {each.role} comes with {each.scale!r} from {by}, which see"
        if self.sums is not None:
            yield from self.sums.advice()

    def as_json(self) -> dict[str, object]:
        """The row as values that JSON has."""
        sums = self.sums
        return {
            "name": self.name,
            "operator": self.operator,
            "error": _json_error(self.own),
            "reached": None if self.reached is None else _json_error(self.reached),
            "sums": None if sums is None else vars(sums),
            "tensors": [_json_tensor(each) for each in self.tensors],
            "advice": list(self.advice()),
        }


def _json_error(error: Error) -> dict[str, float | None]:
    finite = error.relative if np.isfinite(error.relative) else None
    return {"relative": finite, "largest": error.largest, "snr_db": error.snr}


def _json_tensor(tensor: TensorReport) -> dict[str, object]:
    return {
        "role": tensor.role,
        "tensor": tensor.tensor,
        "scale_name": tensor.scale,
        "data_type": str(tensor.scheme.data_type),
        "saturated": tensor.saturated,
        "used": tensor.used,
        "error": _json_error(tensor.error) if tensor.known else None,
        "scheme": _json_scheme(tensor.scheme),
        "advised": {method: _json_scheme(scheme) for method, scheme in tensor.advised.items()},
        "advised_error": _json_error(tensor.advised_error) if tensor.known else None,
    }


def _json_scheme(scheme: Scheme) -> dict[str, list[float]]:
    return {
        "scale": scheme.scale.reshape(-1).tolist(),
        "zero_point": scheme.zero_point.reshape(-1).tolist(),
    }


def examine(layer: Layer) -> LayerReport:
    """Look at a layer, with values that are as they should be."""
    values = {"src": layer.src, "weights": layer.weights}
    bias = 0.0 if layer.bias is None else layer.bias
    meant = layer.after(layer.product.compute(layer.src, layer.weights) + bias)
    left = {
        role: layer.schemes[role].through(array) if role in layer.schemes else array
        for role, array in values.items()
    }
    if layer.stored is not None:
        left["weights"] = layer.schemes["weights"].restored(layer.stored)
    got = layer.after(layer.product.compute(left["src"], left["weights"]) + bias)
    if "dst" in layer.schemes:
        got = layer.schemes["dst"].through(got)
    values["dst"] = meant
    reports = tuple(_tensor(layer, role, values[role]) for role in layer.schemes)
    return LayerReport(layer.name, layer.operator, reports, Error.of(got, meant), _sums(layer))


def _tensor(layer: Layer, role: str, values: Array) -> TensorReport:
    named, scheme = layer.names.get(role, Named()), layer.schemes[role]
    if role == "weights" and layer.stored is not None and layer.lost:
        return TensorReport.of_stored(role, named.tensor, named.scale, scheme, layer.stored)
    return TensorReport.of(role, named.tensor, named.scale, scheme, values)


def _sums(layer: Layer) -> Sums | None:
    """The sums, if both factors are integers."""
    if not {"src", "weights"} <= layer.schemes.keys():
        return None
    src, weights = layer.schemes["src"], layer.schemes["weights"]
    integers = src.stored(layer.src)
    stored = weights.stored(layer.weights) if layer.stored is None else layer.stored
    largest = float(np.abs(layer.product.compute(integers, stored)).max(initial=0.0))
    patches, columns = layer.product.matrices(integers, stored)
    return sums_of(patches, columns, (src.data_type, weights.data_type), largest)


def stored_tensor(
    name: str, operator: str, tensor: TensorReport, reached: Error | None
) -> LayerReport:
    """The row of something that is stored as integers and is no product."""
    return replace(LayerReport(name, operator, (tensor,), tensor.error), reached=reached)
