"""The first minutes on a CUDA card: what works, how fast it is."""
