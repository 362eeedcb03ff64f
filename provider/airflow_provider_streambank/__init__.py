"""Example DAGs, where Airflow looks for those of a provider: in the module of its distribution's name."""
