"""Programs that measure the product and write benchmarks/results; the README is filled from there."""
