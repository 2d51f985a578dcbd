"""Readers of each format but PDF: a file to a manuscript."""
