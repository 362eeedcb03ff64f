"""Histories: what a query measured, read from the job's progress records."""
