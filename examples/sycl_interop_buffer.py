"""A program's own SYCL kernel on memory of the library, which the host cannot touch.

The library allocates the tensors on the device. The program takes their USM for a kernel of its
own, and the stream's queue to submit it. Needs the extra dnnl[sycl].
"""

import numpy as np

import dnnl
from dnnl import Arg, sycl

ADD = """
__kernel void add_one(__global float *x) {
    x[get_global_id(0)] += 1;
}
"""
engine = dnnl.Engine("sycl")
stream = dnnl.Stream(engine)
queue = sycl.get_queue(stream)

values = np.random.default_rng(1).standard_normal((64, 100), np.float32)
src = dnnl.Memory.from_numpy(values, engine=engine)  # a copy on the device
dst = dnnl.Memory(src.desc, engine)

softmax = dnnl.SoftmaxDesc.forward(
    "forward_inference", "softmax_accurate", src.desc, dst.desc, axis=1
)
primitive = dnnl.Primitive(dnnl.PrimitiveDesc(softmax, engine))
primitive.execute(stream, {Arg.SRC: src, Arg.DST: dst})

# The queue is in order, as the stream is: the kernel runs behind the softmax.
program = sycl.dpctl().program.create_program_from_source(queue, ADD)
queue.submit_async(program.get_sycl_kernel("add_one"), [sycl.get_usm(dst)], [values.size])
stream.wait()
queue.wait()

result = dst.numpy()  # a copy on the host
powers = np.exp(values - values.max(axis=1, keepdims=True))
error = np.abs(result - powers / powers.sum(axis=1, keepdims=True) - 1).max()
print(f"softmax + 1 on {sycl.get_device(engine).name}: largest error {error:.1e}")
assert error < 1e-6
