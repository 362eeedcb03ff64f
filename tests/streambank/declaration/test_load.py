from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streambank.cli.options import job_named
from streambank.core.errors import InputError, NotFoundError
from streambank.declaration.load import load_jobs, read_jobs
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.declaration.sla import Declared, Mute, SlaPolicy
from streambank.retention.policy import Policy
from tests.support.jobs.jobs_file import declared_jobs as load
from tests.support.paths import ROOT
from tests.support.refuses import refuses

FULL = """
repository = "repo"
control = "control"

[defaults]
master = "local[2]"
env = ["AWS_PROFILE"]
tags = ["team"]

[defaults.spark]
"spark.sql.shuffle.partitions" = 2
spark.ui.enabled = true

[defaults.stop]
force_after = "90s"

[jobs.orders]
description = "Orders"
application = "apps/orders.py"
args = ["--input", "${DATA}/in", "--price", "5$$"]
checkpoint = "file:///data/ck/orders"
python = "../venv/bin/python"
working_dir = "work"
[jobs.orders.transform]
delete_where = "value.count < 3"
[jobs.orders.bootstrap]
tables = ["totals"]
[jobs.orders.hot_keys]
keys = ["user"]
[jobs.orders.spark]
spark.ui.enabled = false
spark.driver.memory = "1g"
[jobs.orders.savepoint]
schedule = "@hourly"
closure = "minimal"
verify = "full"
share = "2.5%"
blackout = ["22:00-06:00", "12:00-24:00"]
time_zone = "Europe/Berlin"
stagger = "5m"
sweep = true
[jobs.orders.retention]
keep_daily = 7
[jobs.orders.replicate]
to = ["s3://backups/streambank", "replica"]
retention.keep_monthly = 12
[jobs.orders.restore]
sink = "rollback"
approval_timeout = "2h"
[jobs.orders.upgrade]
applications = ["v2.py", "releases/*.py"]
[jobs.orders.stop]
drain_timeout = "5m"
[jobs.orders.start]
timeout = "1m30s"
schedule = "*/5 * * * *"
[jobs.orders.airflow]
owner = "payments"
[jobs.orders.lease]
beat = "500ms"
ttl = "10s"
[jobs.orders.logs]
max_bytes = 20_000
files = 3
[jobs.orders.progress]
max_bytes = 30_000
files = 4
[jobs.orders.sla]
mute = {until = 2026-12-01T00:00:00+01:00, why = "moving house"}
hot_key = false
time_to_limit = {breach = "2d", min_history = "3h"}
[jobs.orders.sla.state_bytes]
warn = "1.5GB"
breach = "5 GiB"
window = "30m"
statistic = "max"
severity = "warn"
mute = {until = 2026-12-02T00:00:00Z, why = "known"}

[jobs.orders.generations]
keep = 3
keep_for = "2d"

[jobs.pairs]
application = "/apps/pairs.py"
checkpoint = "ck/pairs"
queries = ["left", "right"]
"""


def job(more: str = "", top: str = 'repository = "r"') -> str:
    """A declaration whose job's table begins on line 3, and whose `more` begins on line 6."""
    return f'{top}\n\n[jobs.a]\napplication = "a.py"\ncheckpoint = "ck"\n{more}\n'


def mistake(folder: Path, text: str) -> InputError:
    with refuses(InputError, "bad-declaration") as caught:
        load(folder, text)
    return caught.value


def test_everything_that_can_be_declared(tmp_path: Path) -> None:
    declared = load(tmp_path, FULL, DATA="/d")
    assert declared.repository == f"file://{tmp_path}/repo"
    assert list(declared.jobs) == ["orders", "pairs"]
    orders = declared.job("orders")
    assert orders.application == f"{tmp_path}/apps/orders.py"
    assert orders.args == ("--input", "/d/in", "--price", "5$")
    assert orders.generations == GenerationsPolicy(3, 2 * 86_400.0)
    assert declared.job("pairs").generations is None
    assert orders.checkpoint == "file:///data/ck/orders"
    assert orders.queries == {"main": "file:///data/ck/orders"} and orders.query_names == (None,)
    assert orders.control == f"file://{tmp_path}/control"
    assert orders.records().store.uri == f"file://{tmp_path}/control/orders"
    assert orders.python == f"{tmp_path}/../venv/bin/python"
    assert (orders.master, orders.env, orders.tags) == ("local[2]", ("AWS_PROFILE",), ("team",))
    assert orders.working_dir == f"{tmp_path}/work"
    assert orders.spark == {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
    }
    assert (orders.savepoint.schedule, orders.savepoint.closure, orders.savepoint.verify) == (
        "@hourly",
        "minimal",
        "full",
    )
    assert (orders.savepoint.share, orders.savepoint.stagger_s, orders.savepoint.sweep) == (
        "2.5%",
        300.0,
        True,
    )
    assert [str(window) for window in orders.savepoint.blackout] == ["22:00-06:00", "12:00-24:00"]
    assert orders.savepoint.time_zone == "Europe/Berlin"
    assert orders.replicate.to == ("s3://backups/streambank", f"file://{tmp_path}/replica")
    assert orders.retention is not None and orders.retention.keep_daily == 7
    assert orders.replicate.retention == Policy(keep_monthly=12)
    assert (orders.restore.sink, orders.restore.approval_timeout_s) == ("rollback", 7200.0)
    assert orders.upgrade.applications == ("v2.py", "releases/*.py")
    assert (orders.stop.force_after_s, orders.stop.drain_timeout_s) == (90.0, 300.0)
    assert (orders.start.timeout_s, orders.start.schedule) == (90.0, "*/5 * * * *")
    assert (orders.limits.beat_s, orders.limits.ttl_s) == (0.5, 10.0)
    assert (orders.limits.log_max_bytes, orders.limits.log_files) == (20_000, 3)
    assert (orders.limits.progress_max_bytes, orders.limits.progress_files) == (30_000, 4)
    assert orders.sla == SlaPolicy(
        {
            "state_bytes": Declared(
                warn=1.5e9,
                breach=5 * 2.0**30,
                window_s=1800.0,
                statistic="max",
                severity="warn",
                mute=Mute(datetime(2026, 12, 2, tzinfo=UTC), "known"),
            ),
            "time_to_limit": Declared(breach=172_800.0, min_history_s=10_800.0),
            "hot_key": Declared(off=True),
        },
        Mute(datetime(2026, 11, 30, 23, tzinfo=UTC), "moving house"),
        usual={"savepoint_age": 3 * 20 * 3600.0},
    )
    assert orders.line == 17
    pairs = declared.job("pairs")
    assert pairs.queries == {
        "left": f"file://{tmp_path}/ck/pairs/left",
        "right": f"file://{tmp_path}/ck/pairs/right",
    }
    assert pairs.savepoint_name("left") == "pairs/left"
    assert (pairs.stop.force_after_s, pairs.python) == (90.0, sys.executable)


def test_a_short_declaration_is_enough(tmp_path: Path) -> None:
    declared = load(tmp_path, job())
    only = declared.job("a")
    assert only.records().store.uri == f"{declared.repository}.control/a"
    assert only.working_dir == str(tmp_path)
    assert (only.savepoint.schedule, only.env) == (None, ())
    assert (only.replicate.to, only.retention, only.savepoint.sweep) == ((), None, False)
    assert only.replicate.retention is None
    assert (only.limits.progress_files, only.limits.progress_age_s) == (64, None)
    assert (only.savepoint.blackout, only.savepoint.time_zone) == ((), "UTC")
    assert (only.savepoint.stagger_s, only.savepoint.share) == (900.0, "10%")
    with refuses(NotFoundError, "no-such-job", hint="a"):
        declared.job("b")


def test_one_time_zone_counts_for_all_of_a_job(tmp_path: Path) -> None:
    more = (
        '[jobs.a.savepoint]\nschedule = "0 12 * * *"\nblackout = ["22:00-06:00"]\n'
        "[jobs.a.retention]\nkeep_daily = 7\n[jobs.a.replicate]\nto = ['b']\nretention.keep_daily = 9\n"
        '[jobs.a.sla.mute]\nuntil = 2026-12-01T09:00:00\nwhy = "moving"\n'
        '[defaults]\ntime_zone = "Europe/Berlin"\n'
    )
    only = load(tmp_path, job(more)).job("a")

    assert (only.time_zone, only.savepoint.time_zone) == ("Europe/Berlin", "Europe/Berlin")
    assert only.retention == Policy(keep_daily=7, time_zone="Europe/Berlin")
    assert only.replicate.retention == Policy(keep_daily=9, time_zone="Europe/Berlin")
    assert only.sla.mute == Mute(datetime(2026, 12, 1, 8, tzinfo=UTC), "moving")
    assert only.sla.usual["savepoint_age"] == 3 * 25 * 3600.0, "a day of autumn has 25 hours"


def test_blackout_windows_may_have_a_time_zone_of_their_own(tmp_path: Path) -> None:
    own = 'time_zone = "Asia/Tokyo"\n[jobs.a.savepoint]\ntime_zone = "Europe/Berlin"'
    only = load(tmp_path, job(own)).job("a")
    assert (only.time_zone, only.savepoint.time_zone) == ("Asia/Tokyo", "Europe/Berlin")


def test_a_time_zone_that_is_none_is_named_with_its_line_and_the_one_that_was_meant(tmp_path: Path) -> None:
    for text, where in (
        (job('time_zone = "Europe/Berln"'), "line 6, jobs.a.time_zone"),
        (job('[defaults]\ntime_zone = "Europe/Berln"'), "line 7, defaults.time_zone"),
        (job('[maintenance]\ntime_zone = "Europe/Berln"'), "line 7, maintenance.time_zone"),
    ):
        error = mistake(tmp_path, text)
        assert error.message.endswith(f"{where}: 'Europe/Berln' is not a time zone.")
        assert error.hint == "Did you mean Europe/Berlin?"


def test_progress_that_is_kept_for_days_may_fill_more_files(tmp_path: Path) -> None:
    kept = load(tmp_path, job() + "[jobs.a.progress]\ndays = 30\n").job("a").limits
    assert (kept.progress_age_s, kept.progress_files) == (30 * 86_400.0, 4096)
    kept = load(tmp_path, job() + "[jobs.a.progress]\ndays = 30\nfiles = 100\n").job("a").limits
    assert (kept.progress_age_s, kept.progress_files) == (30 * 86_400.0, 100)
    assert "at least 1" in mistake(tmp_path, job() + "[jobs.a.progress]\ndays = 0\n").message


def test_the_projects_own_declaration_is_right() -> None:
    file = ROOT / "dags" / "streaming_jobs.toml"
    declared = load_jobs(file, variables={"STREAMBANK_HOME": "/home/x"})
    assert "flights" in declared.jobs
    assert all(Path(one.application).is_file() for one in declared.jobs.values())


@pytest.mark.parametrize(
    ("more", "line", "field", "says"),
    [
        ('checkpiont = "x"', 6, "checkpiont", "no such field"),
        ("args = 5", 6, "args", "list of strings"),
        ('args = ["a",\n 5]', 6, "args", "list of strings"),
        ("description = true", 6, "description", "a string"),
        ('master = ""', 6, "master", "empty"),
        ('[jobs.a.stop]\n\nforce_after = "60"', 8, "stop.force_after", "'60' is not a duration"),
        ("[jobs.a.stop]\nforce_after = 60", 7, "stop.force_after", "a duration"),
        ('stop = {force_after = "0s"}', 6, "stop.force_after", "longer than 0 s"),
        ('stop.force_after = "1 hour"', 6, "stop.force_after", "not a duration"),
        ('[jobs.a.savepoint]\n# why\nverify = "deep"', 8, "savepoint.verify", "not one of its values"),
        ('[jobs.a.savepoint]\nclosure = "saef"', 7, "savepoint.closure", "not one of its values"),
        ('[jobs.a.rehearse]\nschedule = "@weekly"', 6, "rehearse", "no such field"),
        ('[jobs.a.drill]\nsavepoint = "b000001"', 7, "drill.savepoint", ""),
        ('[jobs.a.drill]\nsavepoint = "each"\nlimit = 0', 8, "drill.limit", ""),
        ("rehearse = {}", 6, "rehearse", "no such field"),
        ("[jobs.a.upgrade]\napplications = ['../b.py']", 7, "upgrade.applications", "names no"),
        ('[jobs.a.savepoint]\nevery = "1h"', 7, "savepoint.every", "no such field"),
        ('[jobs.a.savepoint]\nblackout = "22:00-06:00"', 7, "savepoint.blackout", "a list"),
        ('[jobs.a.savepoint]\nblackout = ["22-6"]', 7, "savepoint.blackout", "not a window of the day"),
        ('[jobs.a.savepoint]\nblackout = ["06:00-06:00"]', 7, "savepoint.blackout", "not a window"),
        ('[jobs.a.savepoint]\nblackout = ["24:00-06:00"]', 7, "savepoint.blackout", "not a window"),
        ('[jobs.a.savepoint]\ntime_zone = "Mars"', 7, "savepoint.time_zone", "not a time zone"),
        ('[jobs.a.savepoint]\ntime_zone = "../UTC"', 7, "savepoint.time_zone", "not a time zone"),
        ('[jobs.a.savepoint]\nstagger = "2h"', 7, "savepoint.stagger", "one minute and one hour"),
        ("[jobs.a.savepoint]\nstagger = 60", 7, "savepoint.stagger", "a duration"),
        ('[jobs.a.savepoint]\nshare = "0%"', 7, "savepoint.share", "not a share"),
        ('[jobs.a.savepoint]\nsweep = "yes"', 7, "savepoint.sweep", "true or false"),
        ('[jobs.a.replicate]\nto = "s3://b"', 7, "replicate.to", "a list of strings"),
        ("[jobs.a.replicate.retention]\nkeep_last = 1", 6, "replicate.to", "missing"),
        (
            '[jobs.a.replicate]\nto = ["x"]\n[jobs.a.replicate.retention]\nmin_verified = 1',
            8,
            "replicate.retention",
            "it keeps nothing",
        ),
        ("[jobs.a.replicate]\nto = []", 7, "replicate.to", "no replica"),
        ('[jobs.a.replicate]\nwhere = ["s3://b"]', 6, "replicate.to", "missing"),
        ('[jobs.a.replicate]\nto = ["x"]\nfrom = "y"', 8, "replicate.from", "no such field"),
        ('[jobs.a.replicate]\nto = ["x", "./x/y"]', 7, "replicate.to", "is listed twice"),
        ('[jobs.a.replicate]\nto = ["r/x"]', 7, "replicate.to", "is the repository"),
        ('[jobs.a.replicate]\nto = ["a://"]', 7, "replicate.to", "'a://'"),
        ('env = ["AIRFLOW__API_AUTH__JWT_SECRET"]', 6, "env", "never passes"),
        ('env = ["_AIRFLOW_X"]', 6, "env", "never passes"),
        ('env = ["A=b"]', 6, "env", "not the name of an environment variable"),
        ('queries = ["x", "x"]', 6, "queries", "twice"),
        ('queries = ["main"]', 6, "queries", "main"),
        ('queries = ["Zähler", "Zahler"]', 6, "queries", 'both "Zähler", "Zahler" would be called Zahler'),
        ('queries = ["x", " "]', 6, "queries", "empty"),
        ('queries = { "../x" = "x" }', 6, "queries", "'../x'"),
        ('queries = { main = "x" }', 6, "queries", "only query"),
        ('queries = { a = "x", b = "x" }', 6, "queries", "twice"),
        ("queries = { a = 1 }", 6, "queries.a", "a string"),
        ('[jobs.a.spark]\n"spark.master" = "local"', 7, "spark.spark.master", "a separate field"),
        (
            '[jobs.a.spark]\n"spark.hadoop.fs.s3a.secret.key" = "x"',
            7,
            "spark.spark.hadoop.fs.s3a.secret.key",
            "it is a credential",
        ),
        (
            '[jobs.a.spark]\n"spark.hadoop.fs.s3a.bucket.b.access.key" = "x"',
            7,
            "spark.spark.hadoop.fs.s3a.bucket.b.access.key",
            "it is a credential",
        ),
        ('[jobs.a.spark]\n"spark.x" = [1]', 7, "spark.spark.x", "a string, a number or a boolean"),
        ("compact = 5", 6, "compact", "a table"),
        ("sla = 5", 6, "sla", "a table"),
        ("[jobs.a.sla]\nstate_bytes = 5", 7, "sla.state_bytes", "a table, or false"),
        ("[jobs.a.sla]\nstate_bytes = true", 7, "sla.state_bytes", "a table, or false"),
        ('[jobs.a.sla]\nstate_byte = {breach = "1GB"}', 7, "sla.state_byte", "no such field"),
        ("[jobs.a.sla]\n\nstate_bytes.breach = 5", 8, "sla.state_bytes.breach", "a size such as"),
        ('[jobs.a.sla]\nstate_bytes.warn = "5"', 7, "sla.state_bytes.warn", "'5' is not a size"),
        ('[jobs.a.sla]\ngrowth.warn = "5MB"', 7, "sla.growth.warn", "not a growth per hour"),
        ('[jobs.a.sla.growth]\nbreach = "x/h"', 7, "sla.growth.breach", "'x' is not a size"),
        ('[jobs.a.sla]\nstate_rows.warn = "5"', 7, "sla.state_rows.warn", "a number"),
        ("[jobs.a.sla]\nstate_rows.warn = -1", 7, "sla.state_rows.warn", "at least 0"),
        ("[jobs.a.sla]\nstate_rows.warn = inf", 7, "sla.state_rows.warn", "at least 0"),
        ("[jobs.a.sla]\nhot_key.warn = nan", 7, "sla.hot_key.warn", "at least 0"),
        ("[jobs.a.sla]\naccess_latency.warn = 5", 7, "sla.access_latency.warn", "a duration"),
        ('[jobs.a.sla]\nstate_bytes.warn = "1TB"', 7, "sla.state_bytes.warn", "by default"),
        (
            '[jobs.a.sla]\nstate_bytes = {warn = "2GB", breach = "1GB"}',
            7,
            "sla.state_bytes.warn",
            "beyond the breach limit, which is 1e+09 bytes",
        ),
        (
            '[jobs.a.sla.time_to_limit]\nwarn = "1d"\nbreach = "2d"',
            7,
            "sla.time_to_limit.warn",
            "beyond the breach",
        ),
        ('[jobs.a.sla]\nstate_bytes.window = "0s"', 7, "sla.state_bytes.window", "longer"),
        ('[jobs.a.sla]\nhot_key.window = "1h"', 7, "sla.hot_key.window", "no such field"),
        ('[jobs.a.sla]\nhot_key.statistic = "p95"', 7, "sla.hot_key.statistic", "no such field"),
        ('[jobs.a.sla]\npause.min_history = "1h"', 7, "sla.pause.min_history", "no such field"),
        ('[jobs.a.sla]\npause.statistic = "p42"', 7, "sla.pause.statistic", "not one of its values"),
        ('[jobs.a.sla]\npause.severity = "high"', 7, "sla.pause.severity", "not one of its values"),
        ('[jobs.a.sla]\nmute = {why = "x"}', 7, "sla.mute.until", "missing"),
        ("[jobs.a.sla.mute]\nuntil = 2026-12-01T00:00:00Z", 6, "sla.mute.why", "missing"),
        ('[jobs.a.sla]\nmute = {until = 2026-12-01, why = "x"}', 7, "sla.mute.until", "a time such"),
        (
            '[jobs.a.sla]\nmute = {until = 2026-12-01T00:00:00, why = "x"}',
            7,
            "sla.mute.until",
            "no time zone",
        ),
        ('[jobs.a.lease]\nttl = "2s"', 7, "lease.ttl", "5 beats"),
        ("[jobs.a.logs]\nmax_bytes = 5", 7, "logs.max_bytes", "at least"),
        ("[jobs.a.logs]\nfiles = true", 7, "logs.files", "a whole number"),
        ('description = "${NOT_SET}"', 6, "description", "NOT_SET is not set"),
        ('description = "${"', 6, "description", "does not begin a variable"),
        ('[jobs.a.x]\n"y z" = 1', 6, "x", "no such field"),
        ('[jobs."../b"]\napplication = "b.py"\ncheckpoint = "ck2"', 6, "jobs.../b", "'../b'"),
        ('[jobs.b]\ncheckpoint = "ck2"', 6, "jobs.b.application", "missing"),
        ('[jobs.b]\napplication = "b.py"', 6, "jobs.b.checkpoint", "missing"),
        ('[jobs.b]\napplication = "b.py"\ncheckpoint = "ck"', 8, "jobs.b.checkpoint", "checkpoint"),
        ('[jobs.b]\napplication = "b.py"\ncheckpoint = "./ck/in"', 8, "jobs.b.checkpoint", "is inside the"),
        ('[jobs.b]\napplication = "b.py"\ncheckpoint = "."', 8, "jobs.b.checkpoint", "contains or"),
        ('[jobs.b]\napplication = "b.py"\ncheckpoint = "r"', 8, "jobs.b.checkpoint", "the repository file:"),
    ],
)
def test_a_mistake_is_named_with_line_and_field(
    tmp_path: Path, more: str, line: int, field: str, says: str
) -> None:
    error = mistake(tmp_path, job(more))
    assert f"line {line}, {field if field.startswith('jobs.') else f'jobs.a.{field}'}: " in error.message
    assert says in error.message
    assert "streaming_jobs.toml" in error.message


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        (job(top=""), 1, "repository"),
        (job(top="repository = 5"), 1, "repository"),
        (job(top='repository = ""'), 1, "repository"),
        (job(top='repository = "r"\nrepo = "x"'), 2, "repo"),
        (job(top='repository = "r"\ncontrol = "ck/jobs"'), 6, "jobs.a.checkpoint"),
        (job(top='repository = "r"\n[defaults]\ncheckpoint = "ck"'), 3, "defaults.checkpoint"),
        (job(top='repository = "r"\n[defaults]\nmastr = "x"'), 3, "defaults.mastr"),
        (job(top='repository = "r"\n[defaults.stop]\nforce_after = "x"'), 3, "defaults.stop.force_after"),
        (
            job(top='repository = "r"\n[defaults.sla]\n\nstate_bytes.breach = 1'),
            4,
            "defaults.sla.state_bytes.breach",
        ),
        ('jobs = 1\nrepository = "r"', 1, "jobs"),
        ('repository = "r"\n[jobs]\na = 1', 3, "jobs.a"),
    ],
)
def test_a_mistake_above_the_jobs_is_named_too(tmp_path: Path, text: str, line: int, field: str) -> None:
    assert f"line {line}, {field}: " in mistake(tmp_path, text).message


@pytest.mark.parametrize(("value", "seconds"), [("true", 900.0), ("false", 0.0), ('"1h"', 3600.0)])
def test_staggering_may_be_switched_off_or_have_its_own_window(
    tmp_path: Path, value: str, seconds: float
) -> None:
    declared = load(tmp_path, job(f"savepoint.stagger = {value}"))
    assert declared.job("a").savepoint.stagger_s == seconds


def test_replicas_may_be_declared_for_all_jobs(tmp_path: Path) -> None:
    top = 'repository = "r"\n[defaults.replicate]\nto = ["s3://backups/r"]'
    assert load(tmp_path, job(top=top)).job("a").replicate.to == ("s3://backups/r",)


def test_objectives_may_be_declared_for_all_jobs_and_changed_by_one(tmp_path: Path) -> None:
    top = 'repository = "r"\n[defaults.sla]\nhot_key = false\nstate_bytes = {warn = "1GB", breach = "2GB"}'
    sla = load(tmp_path, job('[jobs.a.sla]\nhot_key.warn = 5\nstate_bytes.breach = "3GB"', top)).job("a").sla
    assert sla.objectives == {
        "hot_key": Declared(warn=5.0),
        "state_bytes": Declared(warn=1e9, breach=3e9),
    }


def test_a_near_miss_gets_a_suggestion(tmp_path: Path) -> None:
    assert mistake(tmp_path, job('checkpiont = "x"')).hint == "Did you mean checkpoint?"


def test_what_is_no_toml_is_named_with_its_line(tmp_path: Path) -> None:
    assert "line 2" in mistake(tmp_path, 'repository = "r"\nx = = 1\n').message


@pytest.mark.parametrize("kind", ["missing", "directory", "latin"])
def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "jobs.toml"
    if kind == "directory":
        file.mkdir()
    elif kind == "latin":
        file.write_bytes(b'description = "\xe9"')
    with pytest.raises(InputError) as caught:
        load_jobs(file)
    assert caught.value.code == "no-declaration" and str(file) in caught.value.message


def test_variables_may_have_defaults(tmp_path: Path) -> None:
    text = job('args = ["${HERE:-there}", "${HOME:-nowhere}", "${NONE:-}"]')
    assert load(tmp_path, text, HOME="/home/x").job("a").args == ("there", "/home/x", "")


def test_links_are_followed_for_each_job_and_not_for_each_pair_of_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    real = os.path.realpath

    def counted(path: str, **options: Any) -> str:
        found.append(path)
        return real(path, **options)

    def followed(jobs: int) -> int:
        found.clear()
        file = tmp_path / "streaming_jobs.toml"
        tables = (f'[jobs.j{one}]\napplication = "a.py"\ncheckpoint = "ck{one}"\n' for one in range(jobs))
        file.write_text('repository = "r"\n' + "".join(tables))
        assert len(load_jobs(file).jobs) == jobs
        return len(found)

    monkeypatch.setattr(os.path, "realpath", counted)
    few, many = followed(20), followed(80)
    assert few >= 20 and many <= 4 * few


TWO = """
repository = "savepoints"
[jobs.flights]
application = "a.py"
checkpoint = "c/flights"
[jobs.trains]
application = "a.py"
{}
"""


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ('checkpiont = "c/trains"', "jobs.trains.checkpiont: there is no such field."),
        ("", "jobs.trains.checkpoint: it is missing."),
        ('checkpoint = "${NO_SUCH}/c"', "jobs.trains.checkpoint: "),
        ('checkpoint = "c/trains"\nhealth = 3', "jobs.trains.health: it must be a table"),
    ],
)
def test_a_mistake_in_one_job_takes_no_other_job_away(tmp_path: Path, mistake: str, said: str) -> None:
    file = tmp_path / "streaming_jobs.toml"
    file.write_text(TWO.format(mistake), encoding="utf-8")
    found = read_jobs(file, variables={})
    assert list(found.jobs) == ["flights"] and list(found.broken) == ["trains"]
    assert found.broken["trains"].job.notify == ()
    assert found.around("flights").job("flights").name == "flights"
    assert found.around("flights/main") is found.around("flights@copy/main") is found
    for ask in (found.whole, lambda: found.around("trains"), lambda: found.job("trains")):
        with pytest.raises(InputError) as refused:
            ask()
        assert refused.value.code == "bad-declaration" and said in refused.value.message
    with pytest.raises(InputError, match=r"jobs\.trains"):
        found.around("buses")  # it may be the job with the mistake, by another name
    with pytest.raises(InputError, match=r"jobs\.trains"):
        load_jobs(file, variables={})
    with pytest.raises(InputError, match=r"jobs\.trains"):
        job_named("trains", str(file))
    if "NO_SUCH" not in mistake:
        assert job_named("flights", str(file)).name == "flights"


@pytest.mark.parametrize("defaults", [False, True])
def test_of_a_job_with_a_mistake_it_is_known_who_is_alerted(tmp_path: Path, defaults: bool) -> None:
    notify = 'notify = [{class = "pages.Pager", args = {to = "${WHO}"}, kinds = ["giving-up"]}]\n'
    file = tmp_path / "streaming_jobs.toml"
    own = 'checkpiont = "c"\n'
    if defaults:
        file.write_text(TWO.format(own) + f"[defaults]\n{notify}", encoding="utf-8")
    else:
        file.write_text(TWO.format(own + notify), encoding="utf-8")
    (told,) = read_jobs(file, variables={"WHO": "ops"}).broken["trains"].job.notify
    assert (told.path, told.args, told.kinds) == ("pages.Pager", {"to": "ops"}, ("giving-up",))
    assert read_jobs(file, variables={"WHO": "ops"}).broken["trains"].error.code == "bad-declaration"


def test_a_field_that_is_misspelt_is_named_before_the_one_that_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "streaming_jobs.toml"
    file.write_text(TWO.format('checkpiont = "c/trains"'), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        load_jobs(file)
    assert "line 8, jobs.trains.checkpiont" in refused.value.message
    assert refused.value.hint == "Did you mean checkpoint?"


def test_a_name_that_no_job_may_have_is_a_mistake_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "streaming_jobs.toml"
    text = TWO.format('checkpoint = "c/trains"').replace("jobs.trains", 'jobs."no way"')
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="no way"):
        read_jobs(file)
