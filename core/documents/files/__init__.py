"""What a file is and what lies in it: kind, archives, encodings."""
