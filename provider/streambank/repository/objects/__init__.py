"""Content by its digest: small files in packs, large ones alone, and the index that finds both."""
