from __future__ import annotations

from json import dumps, loads
from pathlib import Path

import pytest

from streambank.core.shape import decode
from streambank.declaration.declaration import Job
from streambank.declaration.state import BootstrapPolicy, CompactPolicy, HotKeysPolicy, TransformPolicy
from tests.support.jobs.jobs_file import declared_jobs, mistake

JOB = 'repository = "r"\n[jobs.a]\napplication = "a.py"\n'
ONE = 'checkpoint = "ck"\n'
TWO = 'checkpoint = "ck"\nqueries = ["hourly", "daily"]\n'


def declared(folder: Path, more: str, queries: str = ONE) -> Job:
    return declared_jobs(folder, JOB + queries + more).job("a")


def test_the_spark_that_works_on_the_state(tmp_path: Path) -> None:
    table = '[jobs.a.state]\nmaster = "local[4]"\nwork = "work"\n'
    text = f'{table}[jobs.a.state.spark]\n"spark.driver.memory" = "4g"\n'
    state = declared(tmp_path, text).state
    assert (state.master, state.spark) == ("local[4]", {"spark.driver.memory": "4g"})
    assert state.work is not None and state.work.endswith("/work")
    assert declared(tmp_path, "").state.master is None, "the job's own"


def test_what_expires_and_when(tmp_path: Path) -> None:
    text = '[jobs.a.compact]\nschedule = "@daily"\nidle_for = "30d"\noperator = 0\nmax_rows = 10\n'
    assert declared(tmp_path, text).compact == CompactPolicy(
        schedule="@daily", idle_for="30d", operator=0, max_rows=10
    )
    text = '[jobs.a.compact]\nschedule = "@daily"\nwhere = "n = 1"\nquery = "daily"\n'
    assert declared(tmp_path, text, TWO).compact == CompactPolicy(
        schedule="@daily", where="n = 1", query="daily"
    )


def test_hot_keys_are_sampled_only_where_that_is_declared(tmp_path: Path) -> None:
    assert declared(tmp_path, "").hot_keys is None
    assert declared(tmp_path, "[jobs.a.hot_keys]\n").hot_keys == HotKeysPolicy()
    text = 'keys = ["user", "payload.home town"]\nsample = 1\nwindow = "1h"\nmax_keys = 3\nhashes = true\n'
    policy = declared(tmp_path, f"[jobs.a.hot_keys]\n{text}").hot_keys
    assert policy == HotKeysPolicy(1.0, ("user", "payload.home town"), 3600.0, 3, True)
    assert decode(HotKeysPolicy, {**loads(dumps(policy.to_dict())), "later": 1}, "launch spec") == policy
    everywhere = "\n[defaults.hot_keys]\n"
    assert declared(tmp_path, everywhere).hot_keys == HotKeysPolicy()
    assert declared(tmp_path, f"hot_keys = false\n{everywhere}").hot_keys is None


def test_what_forms_may_change_or_make(tmp_path: Path) -> None:
    assert declared(tmp_path, "").changes.transform is None
    assert declared(tmp_path, "").changes.bootstrap is None
    text = 'sets = ["value.n = 0"]\nwhere = "key.k = 1"\nquery = "daily"\nsamples = 5\nrehearse = true\n'
    assert declared(tmp_path, f"[jobs.a.transform]\n{text}", TWO).changes.transform == TransformPolicy(
        query="daily", sets=("value.n = 0",), where="key.k = 1", samples=5, rehearse=True
    )
    free = declared(tmp_path, '[jobs.a.transform]\nexpressions = "any"\n').changes.transform
    assert free == TransformPolicy(expressions="any")
    text = (
        'tables = ["t", "s3://b/t"]\nformat = "csv"\nsql = "SELECT 1"\nkeys = ["k = a"]\nexisting = "keep"\n'
    )
    made = declared(tmp_path, f"[jobs.a.bootstrap]\n{text}").changes.bootstrap
    assert made == BootstrapPolicy(
        (f"file://{tmp_path}/t", "s3://b/t"), format="csv", sql="SELECT 1", keys=("k = a",), existing="keep"
    )


@pytest.mark.parametrize(
    ("text", "queries", "said"),
    [
        ("[jobs.a.hot_keys]\nsample = 0\n", ONE, "sample: it must be at least 0.0001"),
        (f"[jobs.a.hot_keys]\nsample = {10**400}\n", ONE, "at least 0.0001 and finite, not 1000"),
        ("[jobs.a.hot_keys]\nsample = 1.5\n", ONE, "it is a share, and 1.5 is more than 1"),
        ("[jobs.a.hot_keys]\nmax_keys = 51\n", ONE, "max_keys: it must be at most 50"),
        ('[jobs.a.hot_keys]\nkeys = ["upper(user)"]\n', ONE, "'upper(user)' is not the name of a column"),
        ('[jobs.a.hot_keys]\nkeys = ["a`b"]\n', ONE, "is not the name of a column"),
        ("[jobs.a.hot_keys]\nevery = 5\n", ONE, "there is no such field"),
        ("hot_keys = true\n", ONE, "a table, or false"),
        ('[jobs.a.state.spark]\n"spark.master" = "local"\n', ONE, "the master is a separate field"),
        ('[jobs.a.state]\nmemory = "4g"\n', ONE, "memory"),
        ("[jobs.a.transform]\n", ONE, "nothing says what is changed"),
        ('[jobs.a.transform]\nwhere = "x"\ndelete_where = "y"\n', ONE, "nothing is set"),
        ('[jobs.a.transform]\nsets = ["value.n = 0"]\nquery = "weekly"\n', TWO, "no query 'weekly'"),
        ('[jobs.a.transform]\nsets = ["value.n = 0"]\nsql = "x"\n', ONE, "there is no such field"),
        ("[jobs.a.bootstrap]\n", ONE, "tables: it is missing"),
        ("[jobs.a.bootstrap]\ntables = []\n", ONE, "it names no table"),
        ('[jobs.a.bootstrap]\ntables = ["t"]\nexisting = "all"\n', ONE, "existing"),
        ('[jobs.a.bootstrap]\ntables = ["t"]\nformat = "xml"\n', ONE, "format"),
        ('[jobs.a.compact]\nschedule = "@daily"\n', ONE, "nothing says what expires"),
        ('[jobs.a.compact]\nidle_for = "1d"\nwhere = "x"\n', ONE, "it cannot be combined with where"),
        ('[jobs.a.compact]\nidle_for = "soon"\n', ONE, "idle_for"),
        ('[jobs.a.compact]\nmax_rows = 0\nidle_for = "1d"\n', ONE, "max_rows"),
        ('[jobs.a.compact]\nquery = "weekly"\nidle_for = "1d"\n', TWO, "the job has no query 'weekly'"),
        ('[jobs.a.compact]\nschedule = "@daily"\nidle_for = "1d"\n', TWO, "the job has several queries"),
    ],
)
def test_mistakes_are_named_where_they_stand(tmp_path: Path, text: str, queries: str, said: str) -> None:
    assert said in mistake(declared, tmp_path, text, queries)
