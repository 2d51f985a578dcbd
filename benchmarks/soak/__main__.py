"""`python -m benchmarks.soak`."""

from benchmarks.soak.soak import main

if __name__ == "__main__":
    main()
