"""What Airflow reads about this provider: its connection type and form, settings, modules and links.

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
                "tags": ["software"],
            }
        ],
        "hooks": [
            {
                "integration-name": INTEGRATION,
                "python-modules": ["streambank_airflow.hooks.streambank"],
            }
        ],
        "operators": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [
                    "streambank_airflow.operators.approve",
                    "streambank_airflow.operators.blackout",
                    "streambank_airflow.operators.compact",
                    "streambank_airflow.operators.doctor",
                    "streambank_airflow.operators.drill",
                    "streambank_airflow.operators.erase",
                    "streambank_airflow.operators.failover",
                    "streambank_airflow.operators.hand_over",
                    "streambank_airflow.operators.job",
                    "streambank_airflow.operators.keep",
                    "streambank_airflow.operators.repository",
                    "streambank_airflow.operators.restore",
                    "streambank_airflow.operators.rewrite",
                    "streambank_airflow.operators.savepoint",
                    "streambank_airflow.operators.sla",
                    "streambank_airflow.operators.upgrade",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [
                    "streambank_airflow.sensors.job",
                    "streambank_airflow.sensors.sla",
                    "streambank_airflow.sensors.watermark",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [
                    "streambank_airflow.triggers.events",
                    "streambank_airflow.triggers.job",
                    "streambank_airflow.triggers.sla",
                    "streambank_airflow.triggers.watermark",
                ],
            }
        ],
        "notifications": ["streambank_airflow.notify.job_notifier.JobNotifier"],
        "config": {
            "streambank": {
                "description": "Of the provider airflow-provider-streambank.",
                "options": {
                    "jobs": _file_option(
                        "The streaming_jobs.toml that declares the jobs, for tasks that name none and whose "
                        "connection names none. The environment variable STREAMBANK_JOBS takes precedence.",
                        "/opt/airflow/dags/streaming_jobs.toml",
                    ),
                    "signing_keys": _file_option(
                        "The file with the keys that sign savepoints and records, for workers and the "
                        "triggerer. The environment variable STREAMBANK_SIGNING_KEYS takes precedence.",
                        "/etc/streambank/signing-keys",
                    ),
                    "page": {
                        "description": "Whether Airflow's UI has the page of streaming jobs. If not, "
                        "tasks and the triggerer keep nothing for it in Airflow's database.",
                        "version_added": "0.1.0",
                        "type": "boolean",
                        "example": None,
                        "default": "True",
                    },
                    "page_log": {
                        "description": "Whether the end of the driver's log, from its last exception on, is "
                        "kept for the page. Airflow shows what is kept to those who may read assets, too.",
                        "version_added": "0.1.0",
                        "type": "boolean",
                        "example": None,
                        "default": "True",
                    },
                },
            }
        },
        "extra-links": [
            "streambank_airflow.operators.driver.DriverLogLink",
            "streambank_airflow.operators.on_savepoint.SavepointLink",
        ],
        "asset-uris": [{"schemes": ["streambank"], "handler": "streambank_airflow.assets.sanitize_uri"}],
        "connection-types": [
            {
                "connection-type": "streambank",
                "hook-name": INTEGRATION,
                "hook-class-name": "streambank_airflow.hooks.streambank.StreambankHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "schema", "port"],
                    "relabeling": {"login": "S3 access key ID", "password": "S3 secret access key"},
                },
                "conn-fields": {
                    "repository": _text(
                        "Repository",
                        "Where savepoints are kept: a path or a URI, such as "
                        "file:///var/lib/streambank/repository or s3://bucket/prefix.",
                    ),
                    "jobs_file": _text(
                        "Jobs file",
                        "The streaming_jobs.toml that declares the jobs, for tasks that name none, such as "
                        "/opt/airflow/dags/streaming_jobs.toml.",
                    ),
                    "aws_conn_id": _text(
                        "AWS connection",
                        "The ID of a connection of the type Amazon Web Services (aws) that says how S3 is "
                        "reached, instead of the fields below.",
                    ),
                    "s3_endpoint_url": _text(
                        "S3 endpoint", "The endpoint of an S3 service other than Amazon's."
                    ),
                    "s3_region": _text("S3 region", "The region of the buckets."),
                    "s3_session_token": {
                        "label": "S3 session token",
                        "description": "Required with temporary credentials.",
                        "schema": {"type": ["string", "null"], "format": "password"},
                    },
                    "s3_profile": _text("S3 profile", "A profile of ~/.aws/config, instead of credentials."),
                    "s3_role_arn": _text("S3 role", "The ARN of a role that these credentials assume."),
                    "s3_external_id": _text(
                        "S3 external ID", "The external ID that the role's owner requires."
                    ),
                    "s3_sts_endpoint_url": _text(
                        "STS endpoint", "Where roles are assumed, if not at the default endpoint."
                    ),
                    "s3_encryption": _text(
                        "S3 encryption",
                        "AES256 or aws:kms, requested for each object; empty: the bucket's default.",
                    ),
                    "s3_kms_key_id": _text("S3 KMS key", "The key for aws:kms."),
                },
            }
        ],
    }


def _file_option(description: str, example: str) -> dict[str, Any]:
    """An option that names a file, or none."""
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": "string",
        "example": example,
        "default": "",
    }


def _text(label: str, description: str) -> dict[str, Any]:
    """A field of a form that may be left empty."""
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}
