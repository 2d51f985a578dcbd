"""Measures what speculation costs and yields on this machine, and stores values for the planner that proved
faster.
"""
