"""Streambank's engine: savepoints, restore and job records for Spark Structured Streaming.

Pure Python: the standard library and blake3. It imports neither Airflow nor Spark, so it works on a laptop,
on a Spark executor (shipped as a zip) and inside an Airflow task alike.
"""

__version__ = "0.1.0"
