"""What a sentence about a book rests on: the book's passages, which are near it, and whether one agrees."""
