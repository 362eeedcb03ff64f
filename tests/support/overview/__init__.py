"""A job for tests of what a page shows."""
