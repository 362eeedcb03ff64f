"""What Airflow reads about this provider: its connection type with its form, its modules, its links.

Imports nothing, because every Airflow process calls it. Airflow's `provider_info.schema.json` judges it in a
test.
"""

from __future__ import annotations

from typing import Any

DISTRIBUTION = "airflow-provider-streambank"
INTEGRATION = "Streambank"


def get_provider_info() -> dict[str, Any]:
    """The provider's entry point `apache_airflow_provider`."""
    return {
        "package-name": DISTRIBUTION,
        "name": INTEGRATION,
        "description": "Savepoints and disaster recovery for Spark Structured Streaming.",
        "integrations": [
            {
                "integration-name": INTEGRATION,
                "external-doc-url": "https://spark.apache.org/streaming/",
                "tags": ["software"],
            }
        ],
        "hooks": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [
                    "streambank_airflow.hooks.repository",
                    "streambank_airflow.hooks.streambank",
                ],
            }
        ],
        "operators": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [
                    "streambank_airflow.operators.blackout",
                    "streambank_airflow.operators.job",
                    "streambank_airflow.operators.repository",
                    "streambank_airflow.operators.restore",
                    "streambank_airflow.operators.savepoint",
                ],
            }
        ],
        "sensors": [{"integration-name": INTEGRATION, "python-modules": ["streambank_airflow.sensors.job"]}],
        "triggers": [
            {"integration-name": INTEGRATION, "python-modules": ["streambank_airflow.triggers.job"]}
        ],
        "extra-links": ["streambank_airflow.links.DriverLogLink"],
        "asset-uris": [{"schemes": ["streambank"], "handler": "streambank_airflow.assets.sanitize_uri"}],
        "connection-types": [
            {
                "connection-type": "streambank",
                "hook-name": INTEGRATION,
                "hook-class-name": "streambank_airflow.hooks.streambank.StreambankHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "schema", "login", "password", "port"],
                    "relabeling": {},
                    "placeholders": {
                        "repository": "file:///var/lib/streambank/repository",
                        "jobs_file": "/opt/airflow/dags/streaming_jobs.toml",
                    },
                },
                "conn-fields": {
                    "repository": {
                        "label": "Repository",
                        "description": "Where savepoints are kept: a path or a URI.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "jobs_file": {
                        "label": "Jobs file",
                        "description": (
                            "The streaming_jobs.toml that declares the jobs, for tasks that name none."
                        ),
                        "schema": {"type": ["string", "null"]},
                    },
                },
            }
        ],
    }
