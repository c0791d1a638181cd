"""A primitive between a program's own SYCL kernels, on USM that the program allocated.

One queue of SYCL does everything: a kernel of OpenCL C fills shared memory, ReLU of the library
runs behind it, and the host reads the result. Events order the three. Needs the extra dnnl[sycl].
"""

import numpy as np

import dnnl
from dnnl import Arg, sycl

FILL = """
__kernel void fill(__global float *x) {
    size_t i = get_global_id(0);
    x[i] = i % 2 ? -(float)i : (float)i;
}
"""
dims = (2, 3, 4, 5)
count = int(np.prod(dims))

# The engine and the stream of the library follow from the program's queue.
device = sycl.get_device(dnnl.Engine("sycl"))
queue = sycl.dpctl().SyclQueue(device)
stream = sycl.make_stream(queue)
engine = stream.engine

usm = sycl.dpctl().memory.MemoryUSMShared(4 * count, queue=queue)
desc = dnnl.MemoryDesc(dims, "f32")
memory = sycl.make_memory(desc, engine, usm)

program = sycl.dpctl().program.create_program_from_source(queue, FILL)
filled = queue.submit_async(program.get_sycl_kernel("fill"), [usm], [count])

relu = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", desc, desc)
primitive = dnnl.Primitive(dnnl.PrimitiveDesc(relu, engine))
done = sycl.execute(primitive, stream, {Arg.SRC: memory, Arg.DST: memory}, [filled])
done.wait()

result = np.frombuffer(usm, np.float32)  # the host may read shared USM
expected = np.where(np.arange(count) % 2, 0, np.arange(count))
assert (result == expected).all()
print(f"ReLU on {device.name}: {count} elements are right")
