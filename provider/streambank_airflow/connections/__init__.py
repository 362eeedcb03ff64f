"""Airflow's connections: S3, Spark and the settings that the engine takes."""
