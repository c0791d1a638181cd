"""Look at what was generated: why this implementation, its IR and its inner loop.

The same description is asked for every instruction set, and for devices; nothing of it is executed.
"""

import dnnl
from dnnl import config
from dnnl.runtime.backend import Features

tensor = dnnl.MemoryDesc((32, 512), "f32")
desc = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", tensor, tensor)
engine = dnnl.Engine("null")  # compiles for everything, runs nothing

for isa in ("sse41", "avx2", "avx512_core", "neon"):
    with config.override("max_cpu_isa", isa):
        pd = dnnl.PrimitiveDesc(desc, engine)
    primitive = dnnl.Primitive(pd)
    print(f"{pd.impl_info}: {', '.join(map(str, pd.candidates))}")
    loads = [line for line in primitive.llvm_ir().splitlines() if " = load <" in line]
    print("  IR      ", loads[0].strip())
    # The maximum with zero is one instruction on x86, a comparison and a selection on aarch64.
    heart = [line for line in primitive.asm().splitlines() if "maxps" in line or "fcm" in line]
    print("  assembly", " ".join(heart[0].split()))

for arch in ("nvptx64", "spirv64"):
    device = dnnl.Engine("null", features=Features(arch, "", frozenset()))
    primitive = dnnl.Primitive(dnnl.PrimitiveDesc(desc, device))
    entry = [line for line in primitive.asm().splitlines() if "entry" in line or "Entry" in line]
    print(f"{primitive.pd.impl_info} on a device")
    print("  entry   ", " ".join(entry[0].split()))
