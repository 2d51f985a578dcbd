"""The CPU: attention, products with quantized weights, threads; compiled kernels in native/."""
