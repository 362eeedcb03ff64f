"""Testing one's own DAGs without Spark, Java or a cluster (docs/howto/test-dags.md)."""

from streambank_airflow.testing.fake_jobs import FakeJob, FakeJobs

__all__ = ["FakeJob", "FakeJobs"]
