"""Checkpoints for tests: recorded from Spark, or written as it writes them."""
