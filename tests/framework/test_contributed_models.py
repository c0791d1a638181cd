"""Models as exporters for ONNX Runtime write them, step by step, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.framework.contributed import contributed, contributed_model, results
from tests.framework.models import Array, model_of, node, plans_of, run_peer
from tests.framework.test_matmul_nbits import weights_of

LAYERS, HEADS, SHARED, SIZE, WORDS = 2, 4, 2, 16, 50
WIDTH, INNER = HEADS * SIZE, 96


class Decoder:
    """A language model with weights of 4 bits and caches, as its nodes and constants."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {"minus": np.array([1], np.int64)}

    def product(self, source: str, name: str, k: int, n: int) -> str:
        found, _ = weights_of(self.rng, k, n, 4, 32)
        self.constants |= {f"{name}_w": found["w"], f"{name}_s": found["scales"] / 4}
        names = [source, f"{name}_w", f"{name}_s"]
        attrs = {"K": k, "N": n, "bits": 4, "block_size": 32}
        self.nodes.append(contributed("MatMulNBits", names, name, **attrs))
        return name

    def lengths(self) -> None:
        """Of a mask, the number of all tokens, and of those of each batch."""
        self.constants |= {"second": np.array(1, np.int64), "axis": np.array([1], np.int64)}
        self.nodes += [
            node("ReduceSum", ["mask", "axis"], "sums", keepdims=0),
            node("Sub", ["sums", "minus"], "ends"),
            node("Cast", ["ends"], "lengths", to=6),
            node("Shape", ["mask"], "shape"),
            node("Gather", ["shape", "second"], "all"),
            node("Cast", ["all"], "total", to=6),
        ]

    def layer(self, number: int, hidden: str) -> str:
        """Attention and a gated product, each added to what it reads."""
        own = f"l{number}_"
        scales = {f"{own}n{place}": self.rng.uniform(0.5, 1.5, WIDTH) for place in (0, 1)}
        self.constants |= scales
        queries = self.product(f"{own}normal", f"{own}qkv", WIDTH, (HEADS + 2 * SHARED) * SIZE)
        names = [queries, "", "", f"pk{number}", f"pv{number}", "lengths", "total", "cos", "sin"]
        attrs = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1}
        caches = [f"nk{number}", f"nv{number}"]
        attended = f"{own}attended"
        self.nodes.append(contributed("GroupQueryAttention", names, attended, *caches, **attrs))
        found = self.product(attended, f"{own}o", HEADS * SIZE, WIDTH)
        skip = [hidden, found, f"{own}n1"]
        outs = [f"{own}second", "", "", f"{own}sum"]
        self.nodes.append(contributed("SkipSimplifiedLayerNormalization", skip, *outs))
        gate = self.product(outs[0], f"{own}gate", WIDTH, INNER)
        up = self.product(outs[0], f"{own}up", WIDTH, INNER)
        self.nodes += [
            node("Sigmoid", [gate], f"{own}sig"),
            node("Mul", [gate, f"{own}sig"], f"{own}silu"),
            node("Mul", [f"{own}silu", up], f"{own}gated"),
        ]
        down = self.product(f"{own}gated", f"{own}down", INNER, WIDTH)
        self.nodes.append(node("Add", [outs[3], down], f"{own}out"))
        return f"{own}out"

    def proto(self) -> Any:
        radians = self.rng.standard_normal((64, SIZE // 2))
        self.constants |= {"cos": np.cos(radians), "sin": np.sin(radians)}
        self.constants["table"] = self.rng.standard_normal((WORDS, WIDTH))
        self.lengths()
        self.nodes.append(node("Gather", ["table", "ids"], "embedded"))
        hidden = "embedded"
        for number in range(LAYERS):
            names = [hidden, f"l{number}_n0"]
            op = node("SimplifiedLayerNormalization", names, f"l{number}_normal", epsilon=1e-5)
            self.nodes.append(op)
            hidden = self.layer(number, hidden)
        self.product(hidden, "logits", WIDTH, WORDS)
        order = self._in_order()
        inputs: dict[str, Any] = {"ids": ("b", "s"), "mask": ("b", "t")}
        outputs = ["logits"]
        for number in range(LAYERS):
            inputs |= dict.fromkeys((f"pk{number}", f"pv{number}"), ("b", SHARED, "p", SIZE))
            outputs += [f"nk{number}", f"nv{number}"]
        kinds = {"ids": np.int64, "mask": np.int64}
        return contributed_model(order, inputs, outputs, self.constants, kinds)

    def _in_order(self) -> list[Any]:
        known = {"ids", "mask", *self.constants}
        known |= {f"p{which}{number}" for which in "kv" for number in range(LAYERS)}
        left, order = list(self.nodes), []
        while left:
            ready = next(n for n in left if all(not i or i in known for i in n.input))
            known.update(ready.output)
            order.append(ready)
            left.remove(ready)
        return order


@pytest.mark.parametrize("batch", [1, 3])
def test_a_decoder_step_by_step(batch: int) -> None:
    proto = Decoder().proto()
    model, rng = model_of(proto), np.random.default_rng(1)
    caches = {
        f"p{which}{number}": np.zeros((batch, SHARED, 0, SIZE), np.float32)
        for which in "kv"
        for number in range(LAYERS)
    }
    own, peer = dict(caches), dict(caches)
    length = 0
    for rows in (7, *[1] * 6):
        length += rows
        ids = rng.integers(0, WORDS, (batch, rows))
        mask = np.ones((batch, length), np.int64)
        found = results(model, {"ids": ids, "mask": mask, **own})
        wanted = run_peer(proto, {"ids": ids, "mask": mask, **peer})
        np.testing.assert_allclose(found["logits"], wanted["logits"], rtol=1e-3, atol=1e-3)
        own, peer = (_following(results_) for results_ in (found, wanted))
    # The prompt, a step of the first size, steps of any other.
    assert len(plans_of(model).sessions) <= 3


def _following(found: dict[str, Array]) -> dict[str, Array]:
    return {f"p{name[1:]}": own for name, own in found.items() if name.startswith(("nk", "nv"))}
