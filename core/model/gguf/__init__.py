"""GGUF files: read, checked, written, and the folders that stand for them."""
