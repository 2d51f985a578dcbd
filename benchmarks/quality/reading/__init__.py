"""Judges reading: questions and summaries of known stories put to the shipped program. See
benchmarks.quality.quality.
"""
