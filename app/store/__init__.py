"""What is kept on disk: books, conversations, what was chosen."""
