"""A manuscript's blocks to a Document: chapters, parts, what is not the book."""
