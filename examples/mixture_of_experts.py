"""A mixture of experts: groups of tokens, each multiplied by the weights of its expert.

One grouped product does all experts. How many tokens each of them gets is known only when the
router has spoken: the description says how many tokens and experts there are, the memory where each
group ends.
"""

import numpy as np

import dnnl
from dnnl import Arg, Memory, MemoryDesc, Primitive, PrimitiveAttr, PrimitiveDesc

TOKENS, EXPERTS, WIDTH, HIDDEN = 128, 8, 64, 256
engine = dnnl.Engine("cpu")
stream = dnnl.Stream(engine)
random = np.random.default_rng(1)
tokens = random.standard_normal((TOKENS, WIDTH), np.float32)
experts = random.standard_normal((EXPERTS, WIDTH, HIDDEN), np.float32) / WIDTH**0.5

# Weights in the layout that the kernel wants, once for all batches. gelu is part of the kernel.
attr = PrimitiveAttr()
attr.post_ops.append_eltwise("eltwise_gelu_tanh")
desc = dnnl.MatmulDesc(
    MemoryDesc.grouped((TOKENS, WIDTH), "f32", 0, EXPERTS),
    MemoryDesc(experts.shape, "f32", "any"),
    MemoryDesc.grouped((TOKENS, HIDDEN), "f32", 0, EXPERTS),
)
pd = PrimitiveDesc(desc, engine, attr)
product = Primitive(pd)
packed = Memory.from_numpy(experts).reorder_to(pd.desc.weights_desc)

for batch in range(3):
    chosen = random.integers(0, EXPERTS - batch, TOKENS)  # some experts get nothing
    order = np.argsort(chosen, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=EXPERTS)).astype(np.int32)
    src = Memory(pd.arg_desc(Arg.SRC), engine, [tokens[order], ends])
    dst = Memory(pd.arg_desc(Arg.DST), engine)
    product.execute(stream, {Arg.SRC: src, Arg.WEIGHTS: packed, Arg.DST: dst})

    sums = np.einsum("tk,tkn->tn", tokens, experts[chosen])
    expected = 0.5 * sums * (1 + np.tanh((2 / np.pi) ** 0.5 * (sums + 0.044715 * sums**3)))
    result = np.empty_like(expected)
    result[order] = dst.parts[0].numpy()  # back to the order of the tokens
    assert np.allclose(result, expected, atol=1e-5)
    print(f"tokens of each expert: {np.diff(ends, prepend=0)}, as NumPy has them")
