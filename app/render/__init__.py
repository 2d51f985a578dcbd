"""Text and conversations as HTML."""
