from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from airflow.sdk import DAG, Asset

from streambank_airflow.assets import batch_asset, event_extra, sanitize_uri, savepoint_asset, watermark_asset
from streambank_airflow.triggers.events import WatermarkEventTrigger
from tests.support.airflow_face.moved import DagSerialization


def test_each_job_has_one_asset_and_its_queries_share_it() -> None:
    assert savepoint_asset("flights") == savepoint_asset("flights/hourly")
    assert savepoint_asset("flights") != savepoint_asset("trains")
    assert savepoint_asset("flights").uri == "streambank://savepoints/flights"


def test_other_dags_can_name_the_asset_without_this_package() -> None:
    assert Asset(name="streambank/flights/savepoints", uri="streambank://savepoints/flights") == Asset(
        name=savepoint_asset("flights").name, uri=savepoint_asset("flights").uri
    )


@pytest.mark.parametrize(
    "uri",
    ["streambank://flights", "streambank://savepoints/", "streambank://savepoints/a/b", "streambank:///a"],
)
def test_other_uris_of_the_scheme_are_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="streambank://savepoints/JOB"):
        sanitize_uri(urlsplit(uri))


def test_an_event_says_what_was_saved_and_never_where_or_with_which_secret() -> None:
    result = {
        "savepoint": "b000007-0123456789ab",
        "batch": 7,
        "bytes": 10,
        "repository": "s3://user:secret@bucket",
        "conf": {"spark.password": "secret"},
    }

    assert event_extra(result) == {"savepoint": "b000007-0123456789ab", "batch": 7, "bytes": 10}


# Assets that tell how far a stream is: found by the DAG processor, watched by the triggerer.


def test_an_asset_is_of_one_stream_and_one_interval() -> None:
    uris = {
        watermark_asset("flights").uri,
        watermark_asset("flights", "1d").uri,
        watermark_asset("orders/daily", "15m").uri,
        batch_asset("flights").uri,
    }

    assert uris == {
        "streambank://watermarks/flights/1h",
        "streambank://watermarks/flights/1d",
        "streambank://watermarks/orders/daily/15m",
        "streambank://batches/flights/1",
    }


@pytest.mark.parametrize(
    "uri",
    [
        "streambank://watermarks/flights",
        "streambank://watermarks/a/b/c/1h",
        "streambank://watermarks//1h",
        "streambank://batches/flights",
    ],
)
def test_others_are_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="streambank://watermarks/JOB/EVERY"):
        sanitize_uri(urlsplit(uri))


def test_the_watcher_survives_the_way_through_airflows_database() -> None:
    asset = watermark_asset("flights", "1h", jobs_file="/dags/jobs.toml", poll_interval_s=7.0)
    with DAG("reports", schedule=[asset]) as dag:
        pass

    stored: Any = DagSerialization.to_dict(dag)
    (watcher,) = stored["dag"]["timetable"]["__var"]["asset_condition"]["objects"][0]["watchers"]

    assert watcher["trigger"]["classpath"].endswith(".WatermarkEventTrigger")
    assert WatermarkEventTrigger(**watcher["trigger"]["kwargs"]).poll_interval_s == 7.0


@pytest.mark.usefixtures("airflow_database")
def test_two_dags_that_follow_one_stream_share_one_trigger() -> None:
    from airflow.models.asset import AssetModel
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select, update

    from tests.support.airflow_face.metadata_db import write_dags

    def follower(name: str) -> DAG:
        with DAG(name, schedule=[watermark_asset("shared", "1h", jobs_file="/dags/jobs.toml")]) as dag:
            pass
        return dag

    write_dags(follower("one"), follower("two"))
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id.in_(["one", "two"])).values(is_paused=False))
    write_dags(follower("one"), follower("two"))

    with create_session() as session:
        asset = session.scalars(
            select(AssetModel).where(AssetModel.uri == "streambank://watermarks/shared/1h")
        ).one()
        assert len(asset.triggers) == 1


def test_a_dag_may_name_the_asset_without_watching_it() -> None:
    asset = watermark_asset("flights", "1h")

    assert (
        Asset(name="streambank/flights/watermark/1h", uri="streambank://watermarks/flights/1h").uri
        == asset.uri
    )
