"""Reading books: any supported file to a Document. No torch here."""

from core.documents.document import Document, Section
from core.documents.reader import read_document

__all__ = ["Document", "Section", "read_document"]
