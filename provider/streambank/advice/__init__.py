"""Advice from measurements: which state store, how much memory RocksDB takes, how large state gets."""
