"""The CPU's attention over a long cache, written in C, and how its libraries are built and loaded."""
