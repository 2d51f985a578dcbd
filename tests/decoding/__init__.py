"""Losslessness: the exact law of the loop, its mutants, and greedy equality on real models."""
