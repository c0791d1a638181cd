"""Who makes the description of a recurrent network, for each kind of cells."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.errors import InvalidArguments
from dnnl.primitives.checks import check_forward
from dnnl.primitives.rnn import RnnDesc
from dnnl.types.cell_functions import CellFunctions
from dnnl.types.kinds import Alg, Direction, PropKind, RnnFlags, coerce
from dnnl.types.memory_desc import MemoryDesc


def _made(
    alg_kind: str,
    prop_kind: PropKind | str,
    *,
    activation: Alg | str | None = None,
    alpha: float = 0.0,
    **given: object,
) -> RnnDesc:
    check_forward(prop_kind)
    return RnnDesc.made(
        alg_kind=alg_kind, prop_kind=prop_kind, activation=activation, alpha=alpha, **given
    )


def _gradient(
    alg_kind: str,
    prop_kind: PropKind | str,
    *,
    activation: Alg | str | None = None,
    alpha: float = 0.0,
    **given: object,
) -> RnnDesc:
    if coerce(PropKind, prop_kind, "prop_kind") is not PropKind.backward:
        rule = "expected backward: all gradients are one operation"
        raise InvalidArguments("prop_kind", str(prop_kind), rule, "the computation is forward()")
    return RnnDesc.made(
        alg_kind=alg_kind, prop_kind=prop_kind, activation=activation, alpha=alpha, **given
    )


class VanillaRnnDesc:
    """h = activation(W x + U h' + b)."""

    @staticmethod
    def forward(
        prop_kind: PropKind | str,
        activation: Alg | str | None,
        direction: Direction | str,
        src_layer_desc: MemoryDesc,
        src_iter_desc: MemoryDesc | None,
        weights_layer_desc: MemoryDesc,
        weights_iter_desc: MemoryDesc,
        bias_desc: MemoryDesc | None,
        dst_layer_desc: MemoryDesc,
        dst_iter_desc: MemoryDesc | None,
        alpha: float = 0.0,
        lengths_desc: MemoryDesc | None = None,
        functions: Sequence[CellFunctions] | None = None,
    ) -> RnnDesc:
        """Describe a network of vanilla cells with the ``activation`` eltwise_relu, which has the
        slope ``alpha`` below 0, eltwise_tanh or eltwise_logistic, or None with ``functions``;
        raises InvalidArguments where the rules of `RnnDesc` are broken."""
        return _made("vanilla_rnn", **locals())

    @staticmethod
    def backward(
        prop_kind: PropKind | str,
        activation: Alg | str,
        direction: Direction | str,
        src_layer_desc: MemoryDesc,
        src_iter_desc: MemoryDesc | None,
        weights_layer_desc: MemoryDesc,
        weights_iter_desc: MemoryDesc,
        bias_desc: MemoryDesc | None,
        dst_layer_desc: MemoryDesc,
        dst_iter_desc: MemoryDesc | None,
        diff_src_layer_desc: MemoryDesc | None,
        diff_src_iter_desc: MemoryDesc | None,
        diff_weights_layer_desc: MemoryDesc,
        diff_weights_iter_desc: MemoryDesc,
        diff_bias_desc: MemoryDesc | None,
        diff_dst_layer_desc: MemoryDesc,
        diff_dst_iter_desc: MemoryDesc | None,
        alpha: float = 0.0,
        lengths_desc: MemoryDesc | None = None,
        flags: RnnFlags | str | int = RnnFlags.undef,
    ) -> RnnDesc:
        """Describe the gradient of such a network; raises InvalidArguments where the rules of
        `RnnDesc` are broken."""
        return _gradient("vanilla_rnn", **locals())


class LstmDesc:
    """i, f, o = logistic(W x + U h' + b), c~ = tanh(...), c = f c' + i c~, h = o tanh(c).

    The gates are i, f, c~, o. With a peephole P the old c is seen by i and f, the new one by o:
    they are logistic(... + P c). With a projection R the state is R (o tanh(c)).
    """

    @staticmethod
    def forward(
        prop_kind: PropKind | str,
        direction: Direction | str,
        src_layer_desc: MemoryDesc,
        src_iter_desc: MemoryDesc | None,
        src_iter_c_desc: MemoryDesc | None,
        weights_layer_desc: MemoryDesc,
        weights_iter_desc: MemoryDesc,
        bias_desc: MemoryDesc | None,
        dst_layer_desc: MemoryDesc,
        dst_iter_desc: MemoryDesc | None,
        dst_iter_c_desc: MemoryDesc | None,
        weights_peephole_desc: MemoryDesc | None = None,
        weights_projection_desc: MemoryDesc | None = None,
        lengths_desc: MemoryDesc | None = None,
        functions: Sequence[CellFunctions] | None = None,
        gate_order: str = "",
    ) -> RnnDesc:
        """Describe a network of LSTM cells; raises InvalidArguments where the rules of `RnnDesc`
        are broken."""
        return _made("vanilla_lstm", **locals())

    @staticmethod
    def backward(
        prop_kind: PropKind | str,
        direction: Direction | str,
        src_layer_desc: MemoryDesc,
        src_iter_desc: MemoryDesc | None,
        src_iter_c_desc: MemoryDesc | None,
        weights_layer_desc: MemoryDesc,
        weights_iter_desc: MemoryDesc,
        bias_desc: MemoryDesc | None,
        dst_layer_desc: MemoryDesc,
        dst_iter_desc: MemoryDesc | None,
        dst_iter_c_desc: MemoryDesc | None,
        diff_src_layer_desc: MemoryDesc | None,
        diff_src_iter_desc: MemoryDesc | None,
        diff_src_iter_c_desc: MemoryDesc | None,
        diff_weights_layer_desc: MemoryDesc,
        diff_weights_iter_desc: MemoryDesc,
        diff_bias_desc: MemoryDesc | None,
        diff_dst_layer_desc: MemoryDesc,
        diff_dst_iter_desc: MemoryDesc | None,
        diff_dst_iter_c_desc: MemoryDesc | None,
        weights_peephole_desc: MemoryDesc | None = None,
        weights_projection_desc: MemoryDesc | None = None,
        diff_weights_peephole_desc: MemoryDesc | None = None,
        diff_weights_projection_desc: MemoryDesc | None = None,
        lengths_desc: MemoryDesc | None = None,
        flags: RnnFlags | str | int = RnnFlags.undef,
        gate_order: str = "",
    ) -> RnnDesc:
        """Describe the gradient of a network of LSTM cells; raises InvalidArguments where the rules
        of `RnnDesc` are broken."""
        return _gradient("vanilla_lstm", **locals())


class _OfGru:
    """Descriptions of one kind of GRU cells."""

    _alg = ""

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        direction: Direction | str,
        src_layer_desc: MemoryDesc,
        src_iter_desc: MemoryDesc | None,
        weights_layer_desc: MemoryDesc,
        weights_iter_desc: MemoryDesc,
        bias_desc: MemoryDesc | None,
        dst_layer_desc: MemoryDesc,
        dst_iter_desc: MemoryDesc | None,
        lengths_desc: MemoryDesc | None = None,
        functions: Sequence[CellFunctions] | None = None,
        gate_order: str = "",
    ) -> RnnDesc:
        """Describe a network of these cells; raises InvalidArguments where the rules of `RnnDesc`
        are broken."""
        given = {name: own for name, own in locals().items() if name != "cls"}
        return _made(cls._alg, **given)

    @classmethod
    def backward(
        cls,
        prop_kind: PropKind | str,
        direction: Direction | str,
        src_layer_desc: MemoryDesc,
        src_iter_desc: MemoryDesc | None,
        weights_layer_desc: MemoryDesc,
        weights_iter_desc: MemoryDesc,
        bias_desc: MemoryDesc | None,
        dst_layer_desc: MemoryDesc,
        dst_iter_desc: MemoryDesc | None,
        diff_src_layer_desc: MemoryDesc | None,
        diff_src_iter_desc: MemoryDesc | None,
        diff_weights_layer_desc: MemoryDesc,
        diff_weights_iter_desc: MemoryDesc,
        diff_bias_desc: MemoryDesc | None,
        diff_dst_layer_desc: MemoryDesc,
        diff_dst_iter_desc: MemoryDesc | None,
        lengths_desc: MemoryDesc | None = None,
        flags: RnnFlags | str | int = RnnFlags.undef,
        gate_order: str = "",
    ) -> RnnDesc:
        """Describe the gradient of a network of these cells; raises InvalidArguments where the
        rules of `RnnDesc` are broken."""
        given = {name: own for name, own in locals().items() if name != "cls"}
        return _gradient(cls._alg, **given)


class GruDesc(_OfGru):
    """u, r = logistic(W x + U h' + b), o = tanh(W x + U (r h') + b), h = u h' + (1 - u) o.

    The gates are u, r, o.
    """

    _alg = "vanilla_gru"


class LbrGruDesc(_OfGru):
    """A GRU that is linear before the reset: o = tanh(W x + b + r (U h' + b')).

    The gates are u, r, o, the biases those of u, r, o and b'.
    """

    _alg = "lbr_gru"


class _OfAugru:
    """Descriptions of one kind of GRU cells with an attention."""

    _alg = ""

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        direction: Direction | str,
        src_layer_desc: MemoryDesc,
        src_iter_desc: MemoryDesc | None,
        attention_desc: MemoryDesc,
        weights_layer_desc: MemoryDesc,
        weights_iter_desc: MemoryDesc,
        bias_desc: MemoryDesc | None,
        dst_layer_desc: MemoryDesc,
        dst_iter_desc: MemoryDesc | None,
        lengths_desc: MemoryDesc | None = None,
        functions: Sequence[CellFunctions] | None = None,
        gate_order: str = "",
    ) -> RnnDesc:
        """Describe a network of these cells; raises InvalidArguments where the rules of `RnnDesc`
        are broken."""
        given = {name: own for name, own in locals().items() if name != "cls"}
        return _made(cls._alg, **given)

    @classmethod
    def backward(
        cls,
        prop_kind: PropKind | str,
        direction: Direction | str,
        src_layer_desc: MemoryDesc,
        src_iter_desc: MemoryDesc | None,
        attention_desc: MemoryDesc,
        weights_layer_desc: MemoryDesc,
        weights_iter_desc: MemoryDesc,
        bias_desc: MemoryDesc | None,
        dst_layer_desc: MemoryDesc,
        dst_iter_desc: MemoryDesc | None,
        diff_src_layer_desc: MemoryDesc | None,
        diff_src_iter_desc: MemoryDesc | None,
        diff_attention_desc: MemoryDesc,
        diff_weights_layer_desc: MemoryDesc,
        diff_weights_iter_desc: MemoryDesc,
        diff_bias_desc: MemoryDesc | None,
        diff_dst_layer_desc: MemoryDesc,
        diff_dst_iter_desc: MemoryDesc | None,
        lengths_desc: MemoryDesc | None = None,
        flags: RnnFlags | str | int = RnnFlags.undef,
        gate_order: str = "",
    ) -> RnnDesc:
        """Describe the gradient of a network of these cells; raises InvalidArguments where the
        rules of `RnnDesc` are broken."""
        given = {name: own for name, own in locals().items() if name != "cls"}
        return _gradient(cls._alg, **given)


class AugruDesc(_OfAugru):
    """A GRU with an attention a for each step and row: (1 - a) u replaces u in h."""

    _alg = "vanilla_augru"


class LbrAugruDesc(_OfAugru):
    """A GRU that is linear before the reset (`LbrGruDesc`), with an attention (`AugruDesc`)."""

    _alg = "lbr_augru"
