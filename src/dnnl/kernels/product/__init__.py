"""Products: what matmul, inner product, convolution and deconvolution share."""
