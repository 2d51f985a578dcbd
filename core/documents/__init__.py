"""Reading books: any supported file to a Document. No torch here."""
