"""Model files on disk: the catalogue, downloads, conversions, what is kept."""
