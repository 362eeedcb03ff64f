"""A job that only DAGs of one's own work on, in a real Chromium: listed, opened, led to its form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank_airflow.operators.job import StartStreamingJobOperator, StopStreamingJobOperator
from tests.support.airflow_face.metadata_db import pause, write_dags
from tests.support.airflow_face.page_api import keep_line, page_api, page_on
from tests.support.jobs.declared import write_jobs
from tests.support.page.site import Site, no_errors, site

__all__ = ["page_api", "page_on", "site"]

# Airflow answers with fields of its own that it has deprecated.
pytestmark = [
    pytest.mark.storm,
    pytest.mark.filterwarnings("default:deprecated:DeprecationWarning"),
]

LINKS = "[...document.querySelectorAll('.sb-toolbar a')].map((one) => [one.textContent, one.pathname])"


def write_own_dags(folder: Path) -> None:
    """Two that stop the job, one of which also starts it."""
    where: dict[str, Any] = {"job": "parcels", "jobs_file": str(write_jobs(folder, name="parcels"))}
    with DAG("parcels-day", schedule=None) as day:
        StartStreamingJobOperator(task_id="up", **where) >> StopStreamingJobOperator(task_id="down", **where)
    with DAG("parcels-end", schedule=None, dag_display_name="End of parcels") as end:
        StopStreamingJobOperator(task_id="down", **where)
    write_dags(day, end)
    for dag in (day, end):
        pause(dag.dag_id, False)


def test_a_job_of_own_dags_is_listed_opened_and_triggered_in_airflow(
    site: Site, page_on: None, tmp_path: Path
) -> None:
    write_own_dags(tmp_path)
    keep_line("parcels", state="failed", state_why="Its driver is gone.", desired={"state": "running"})
    with site.visit("admin") as page:
        page.open(site.page())
        page.shows("parcels")
        page.click("parcels", ".sb-table")
        page.shows("The job is down")
        day, end = "/dags/parcels-day", "/dags/parcels-end"
        assert page.js(LINKS) == [["Run, Stop: parcels-day", day], ["Stop: End of parcels", end]]
        # What is wrong leads to the DAG that helps.
        assert (
            page.js("document.querySelector('.sb-banner-act a.sb-button').textContent") == "Run: parcels-day"
        )
        no_errors(page)
        page.js("document.querySelector('.sb-banner-act a.sb-button').click()")
        page.until("location.pathname === '/dags/parcels-day'")
        page.until(
            "[...document.querySelectorAll('button')].some((one) => one.textContent.includes('Trigger'))"
        )

        page.open(f"{site.url}{end}/plugin/streambank-job")
        page.shows("The job is down")
        page.shows("Stop: End of parcels")
        no_errors(page)


def test_who_may_not_trigger_them_has_no_links(site: Site, page_on: None, tmp_path: Path) -> None:
    write_own_dags(tmp_path)
    keep_line("parcels", state="failed", desired={"state": "running"})
    with site.visit("viewer") as page:
        page.open(site.page("parcels"))
        page.shows("You may see this job. Its actions need the right to trigger its DAGs.")
        assert page.js(LINKS) == []
        no_errors(page)


def test_a_job_that_is_not_there_says_what_to_do(site: Site) -> None:
    with site.visit("admin") as page:
        page.open(site.page("nowhere"))
        page.shows("There is no job nowhere that you may see.")
        page.shows('inlets=[page_asset("nowhere")]')
