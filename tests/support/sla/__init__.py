"""Histories and verdicts for tests."""
