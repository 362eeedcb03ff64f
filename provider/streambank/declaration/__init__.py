"""Declarations: what `streaming_jobs.toml` says of a job, a module a table (docs/reference/jobs.md)."""
