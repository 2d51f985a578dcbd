"""PDF to a manuscript: pages, layout, paragraphs, what cannot be read, OCR."""
