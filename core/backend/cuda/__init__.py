"""NVIDIA cards: attention, copies on streams, pinned memory, recorded passes; kernels in triton/."""
