"""Programs that measure the product and write benchmarks/results; tables in the pages are made of those."""
