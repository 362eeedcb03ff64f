"""Sensors: a job's state, a committed batch."""
