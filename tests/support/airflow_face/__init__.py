"""Airflow for tests: real processes, its metadata database, notifiers."""
