"""The Airflow face: hook, operators, sensors, triggers and the DAGs of declared jobs."""
