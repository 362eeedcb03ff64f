from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.copies.refresh import RefreshRequest, plan_refresh
from streambank.copies.report import RefreshReport
from streambank.core.names import PRIMARY, SITES, STANDBY
from streambank.core.units import utc_now
from streambank.declaration.load import load_jobs
from streambank.sites.records import SiteRecord, Sites
from streambank.work.executor import Pace
from tests.support.cli import Answer, streambank
from tests.support.jobs.declared import BY, fake_installation
from tests.support.jobs.two_sites import NAME, TwoSites, two_sites
from tests.support.json_examples import examples, mismatches


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoSites]:
    installation = fake_installation(tmp_path)
    monkeypatch.setattr("streambank.driver.launchers.local.installation_of", lambda job: installation)
    with two_sites(tmp_path) as found:
        yield found


def failover(sites: TwoSites, *options: str) -> Answer:
    return streambank("failover", NAME, "--jobs", sites.jobs, *options)


def job(sites: TwoSites, verb: str, name: str = NAME, *options: str) -> Answer:
    return streambank("job", verb, name, "--jobs", sites.jobs, *options)


def test_there_and_back_by_the_command_line(sites: TwoSites) -> None:
    sites.start()
    planned = failover(sites, "--dry-run", "--json")
    assert (planned.code, planned.document["driver"], planned.document["refusals"]) == (0, "running", [])
    (missing,) = planned.document["without_final"]
    assert "There is no repository" in missing, "a last savepoint would be the first one there"
    planned = failover(sites, "--dry-run", "--no-final-savepoint", "--json")
    assert (planned.code, planned.document["refusals"]) == (1, [missing])
    sites.save()
    planned = failover(sites, "--dry-run", "--json")
    assert (planned.code, planned.document["refusals"]) == (0, [])
    assert list(mismatches(examples()["failover --dry-run"], planned.document)) == []
    assert "would fail over job orders from the primary to the standby" in failover(sites, "--dry-run").out

    done = failover(sites, "--why", "maintenance", "--json")
    assert done.code == 0, done
    assert list(mismatches(examples()["failover"], done.document)) == []
    assert (done.document["why"], done.document["rpo_s"]) == ("maintenance", 0)
    there = job(sites, "status", f"{NAME}@standby", "--json").document
    assert there["site"]["active"] == STANDBY and there["site"]["unfenced"] is None
    assert "the standby is the active site" in job(sites, "status").out
    refused = job(sites, "start", NAME, "--json")
    assert (refused.code, refused.document["error"]) == (8, "failed-over")
    assert job(sites, "savepoint", f"{NAME}@standby").code == 0

    fenced = failover(sites, "--fence", "--json").document
    assert fenced == {"job": NAME, "active": STANDBY, "number": 3, "fenced": True, "fence": "none"}
    back = failover(sites, "--to", "primary")
    assert back.code == 0 and "job orders runs at the primary" in back.out
    assert sites.state(PRIMARY) == "running"


def test_what_makes_no_sense_is_said(sites: TwoSites) -> None:
    for options, code in (
        (("--fence", "--to", "primary"), "usage"),
        (("--to", "moon"), "no-such-site"),
        (("--is-down", "standby"), "no-such-site"),
    ):
        answer = failover(sites, *options, "--json")
        assert (answer.code, answer.document["error"]) == (2, code), options
    assert failover(sites, "--fence").out == "There is nothing to fence for job orders.\n"


OTHERWISE = """
env = ["WEST_KEY"]

[jobs.orders.kafka]
bootstrap = "east:9092"

[jobs.orders.standby.kafka]
bootstrap = "west:9092"

[jobs.orders.copies.staging]
checkpoint = "staging/checkpoint"
"""


@pytest.mark.parametrize("site", [PRIMARY, STANDBY])
def test_a_copy_is_of_the_site_that_is_active(
    site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[str, str | None]]()

    def plan(request: RefreshRequest, *, pace: Pace) -> RefreshReport:
        assert request.kafka is not None
        asked.append((request.job.site, request.kafka.bootstrap(None)))
        return plan_refresh(request, pace=pace)

    monkeypatch.setattr("streambank.copies.refresh.plan_refresh", plan)
    with two_sites(tmp_path, OTHERWISE) as sites:
        if site == STANDBY:
            record = SiteRecord(3, "active", STANDBY, PRIMARY, False, BY, "", utc_now())
            assert Sites(sites.at(STANDBY).records()).write(record)
        answer = streambank("fork", NAME, "staging", "--jobs", sites.jobs, "--dry-run")
        launched = [load_jobs(sites.jobs).job(name).env for name in ("orders@staging", "orders-staging")]
        named = [load_jobs(sites.jobs).job(f"{NAME}@{each}").site for each in SITES]
    assert launched == [("WEST_KEY",) if site == STANDBY else ()] * 2
    assert named == [*SITES], "a site that is named is meant"
    assert answer.code == 3, "nothing was saved yet"
    assert asked == [(site, "west:9092" if site == STANDBY else "east:9092")]


@pytest.mark.storm
def test_a_copy_of_a_site_that_is_not_active_says_so(tmp_path: Path) -> None:
    with two_sites(tmp_path, '[jobs.orders.copies.staging]\ncheckpoint = "staging/checkpoint"') as sites:
        sites.start()
        sites.save()
        at_primary = ("fork", NAME, "staging", "--jobs", sites.jobs, "--dry-run")
        quiet = streambank(*at_primary)
        assert quiet.code == 0 and "active site" not in quiet.err, quiet
        assert (
            "of the standby, which is not the active site"
            in streambank("fork", f"{NAME}@standby", *at_primary[2:]).err
        )
        record = SiteRecord(3, "active", STANDBY, PRIMARY, False, BY, "", utc_now())
        assert Sites(sites.at(STANDBY).records()).write(record)
        by_name = ("fork", f"{NAME}@primary", *at_primary[2:])
        assert "of the primary, which is not the active site" in streambank(*by_name).err
        assert "active site" not in streambank(*at_primary).err, "it follows the active site"
