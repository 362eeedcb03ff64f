"""State as rows: read, compared, counted and verified by Spark's own reader."""
