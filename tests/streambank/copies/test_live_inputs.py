"""What the live job reads, in which no copy may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.progress import ProgressWriter
from streambank.copies.live_inputs import is_read_from, live_inputs
from streambank.copies.refresh import RefreshRequest, plan_refresh
from streambank.core.errors import InputError
from tests.support.jobs.copied_job import STAGING, CopiedJob
from tests.support.jobs.simulated_job import BY
from tests.support.refuses import refuses


@pytest.mark.parametrize("spark", ["FileSource[{}]", "FileStreamSource[{}]"])
@pytest.mark.parametrize(
    ("old", "new"), [("staging/out", "in/out"), ("staging/ck", "in/ck"), ("staging/out", "./data")]
)
def test_a_copy_within_the_input_of_the_live_job_is_refused(
    tmp_path: Path, spark: str, old: str, new: str
) -> None:
    """Its query would read what the copy writes."""
    made = CopiedJob(tmp_path, STAGING.replace(old, new))
    source = "data/in" if "data" in new else "in"
    made.control().record_query(None, {"sources": [spark.format((tmp_path / source).as_uri())]})
    with refuses(InputError, "copy-not-apart", match="which the live job reads"):
        made.refresh()
    with pytest.raises(InputError):
        plan_refresh(RefreshRequest(made.job, "staging", by=BY))
    assert not (tmp_path / "in").exists() and not (tmp_path / "staging").exists()


def test_what_spark_says_of_a_batch_counts_where_the_application_names_a_relative_path(
    tmp_path: Path,
) -> None:
    made = CopiedJob(tmp_path, STAGING.replace("staging/out", "in/out"))
    records = made.control()
    records.record_query(None, {"sources": ["FileSource[in]", "Kafka"]})
    assert live_inputs(made.job, records) == []
    said = [{"description": f"FileStreamSource[{(tmp_path / 'in').as_uri()}]"}, {"description": "Rate"}]
    writer = ProgressWriter(records.store, None, epoch=1)
    writer.add({"runId": "a", "id": "q", "batchId": 1, "numInputRows": 1, "sources": said})
    writer.flush()
    assert live_inputs(made.job, records) == [(tmp_path / "in").as_uri()]
    with pytest.raises(InputError):
        made.refresh()


def test_an_input_elsewhere_is_none(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    made.control().record_query(None, {"sources": [f"FileSource[{tmp_path}/in]"]})
    made.refresh()


@pytest.mark.parametrize(
    ("place", "pattern", "read"),
    [
        ("file:///d/staging/out", "file:///d/*/out", True),
        ("file:///d/staging/out/deep", "file:///d/*/out", True),
        ("file:///d/staging", "file:///d/*/out", True),
        ("file:///d", "file:///d/*/out", True),
        ("file:///d/staging/other", "file:///d/*/out", False),
        ("file:///d/staging/out", "file:///d/*.json", False),
        ("file:///d/in-copy", "file:///d/in-{a,copy}", True),
        ("file:///d/out", "file:///d/out.g*", True),
        ("file:///other", "file:///d/*", False),
        ("s3://b/in/out", "s3a://b/in", True),
        ("s3://b/x/out", "s3a://b/*/out", True),
    ],
)
def test_wildcards_are_those_of_hadoop(place: str, pattern: str, read: bool) -> None:
    assert is_read_from(place, pattern) is read
