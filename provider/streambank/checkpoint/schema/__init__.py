"""Schemas in a checkpoint: of its query, of its state stores, and whether one fits another."""
