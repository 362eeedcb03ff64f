"""What stands where a Spark driver does while people test their DAGs: see `streambank_airflow.testing`."""
