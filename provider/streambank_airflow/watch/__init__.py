"""Watching: a job's driver, its objectives, its event time, and whether its DAG is paused."""
