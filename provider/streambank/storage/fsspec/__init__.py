"""Stores over fsspec file systems."""
