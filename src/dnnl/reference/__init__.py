"""The executable specification: one NumPy function per operation, in float64, on logical arrays.

A function takes and returns plain ndarrays whose axes are the tensor's logical dimensions, and
computes without intermediate rounding; ``conversions.convert`` then says what storing the result in
a data type gives. Next to each function is ``TOLERANCE``, how far a kernel may be from it.
"""
