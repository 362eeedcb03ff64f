"""Stores for tests: with faults, with interruptions, on S3 servers."""
