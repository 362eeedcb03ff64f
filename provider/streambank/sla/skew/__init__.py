"""Skew: how unevenly state lies over its partitions, and which keys are hot."""
