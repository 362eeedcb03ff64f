"""Nights of people on call, played through Airflow's REST API against a real Airflow and a real Spark.

`make test-storm ARGS="tests/nights"` plays all of them, `python -m tests.nights [NAME ...]` some. What came
of each is written below `.streambank/nights`.
"""
