"""Nothing secret is in a snapshot, wherever it stood."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.control.processes import who
from streambank.control.records import RecordStream
from streambank.declaration.load import load_jobs
from streambank.job.start import start_job
from streambank.overview.snapshot import PARTS, snapshot
from tests.support.jobs.declared import fake_launcher, write_jobs
from tests.support.overview.shown_job import use_fake_launcher

SECRETS = {
    "conf": "planted-in-conf-1",
    "environment": "planted-in-env-2",
    "address": "planted-in-address-3",
    "log": "planted-in-log-4",
    "argument": "planted-in-argument-5",
    "question": "planted-in-question-6",
    "token": "planted-in-token-7",
    "offset": "planted-in-offset-8",
}
MORE = """
env = ["WAREHOUSE_PASSWORD"]
[jobs.flights.spark]
"spark.app.note" = "${PLANTED_CONF}"
[jobs.flights.replicate]
to = ["nowhere://ann:planted-in-address-3@bucket/savepoints?sig=planted-in-question-6"]
"""


def test_no_planted_secret_is_in_a_snapshot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", SECRETS["environment"])
    monkeypatch.setenv("PLANTED_CONF", SECRETS["conf"])
    use_fake_launcher(folder, monkeypatch)
    words = (
        f"Traceback (most recent call last):|ValueError: no login of s3://ann:{SECRETS['address']}@lake/x?sig="
        f"{SECRETS['question']} with {SECRETS['environment']}|"
        f"RuntimeError: password={SECRETS['log']} Bearer {SECRETS['token']}"
    )
    args = ("--die-before-lease", "3", "--last-words", words)
    job = load_jobs(write_jobs(folder, *args, more=MORE)).job("flights")
    with pytest.raises(Exception, match="flights"):
        start_job(job, by=who("test", token=SECRETS["token"]), why=f"api_key: {SECRETS['log']}",
                  launcher=fake_launcher(folder))  # fmt: skip
    records = job.records()
    records.record_event("query-ended", query="main", failure=f"secret={SECRETS['log']}")
    report = {
        "started_at": "x",
        "error": f"s3://u:{SECRETS['address']}@b/k?X-Amz-Signature={SECRETS['question']}",
    }
    RecordStream(records.store, "drills").append(report)
    found = snapshot(job, parts=PARTS)
    text = json.dumps(found.to_dict())
    assert found.parts["log"]["lines"] and "RuntimeError" in text and "no login of s3://lake/x" in text
    leaked = [name for name, secret in SECRETS.items() if secret in text]
    assert leaked == []
