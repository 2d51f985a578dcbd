"""Device work behind one protocol: attention, memory, copies, linear kernels."""
