"""The GPU's attention of few queries over a long cache, written in Triton, and how it is compiled, loaded
and tried.
"""
