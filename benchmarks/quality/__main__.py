"""`python -m benchmarks.quality`."""

from benchmarks.quality.quality import main

if __name__ == "__main__":
    main()
