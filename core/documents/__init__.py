"""Reading books: any supported file to a Document. No torch here."""

from core.documents.document import Document, Section
from core.documents.reader import read_document
from core.documents.safely import ReadingCancelled, cover_safely, read_safely

__all__ = ["Document", "ReadingCancelled", "Section", "cover_safely", "read_document", "read_safely"]
