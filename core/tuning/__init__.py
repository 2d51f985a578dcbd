"""Measures what speculation costs and yields on this machine, and keeps values that proved faster."""
