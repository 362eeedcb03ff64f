"""Nights of people on call, played through Airflow's REST API against a real Airflow and a real Spark.

What broke, how long the job was away, what a person had to do, which tasks were red, which alerts were sent,
and whether every row came out, once. `make test-storm WORKERS=1 ARGS="tests/nights"` plays all nights on one
Airflow, `python -m tests.nights [NAME ...]` some of them. The table is printed, and kept below
`.streambank/nights`. `test_worst_six.py` plays the worst of them in the suite, without a live Airflow.
"""
