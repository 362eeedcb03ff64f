"""Copies of a job's state, as they are declared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streambank.core.errors import InputError, NotFoundError
from streambank.declaration.declaration import Declarations
from streambank.declaration.places.copies import CopyPolicy, are_apart
from streambank.declaration.state import HotKeysPolicy
from tests.support.jobs.jobs_file import declared_jobs, mistake
from tests.support.refuses import refuses

JOB = 'repository = "file:///s"\n[jobs.orders]\napplication = "a.py"\ncheckpoint = "file:///ck/orders"\n'
COPY = """
[jobs.orders.copies.staging]
checkpoint = "file:///staging/orders"
[jobs.orders.copies.staging.outputs]
"file:///out" = "file:///staging/out"
orders_out = "file:///staging/topic"
"./rel" = "file:///staging/rel"
"""


def declared(folder: Path, text: str, job: str = JOB) -> Declarations:
    return declared_jobs(folder, job + text)


def test_the_job_on_a_copy_has_nothing_of_the_live_one(tmp_path: Path) -> None:
    live = 'standby = { checkpoint = "file:///there/ck", repository = "file:///there/s" }\n'
    replicate = '[jobs.orders.replicate]\nto = ["file:///there/s"]\n'
    found = declared(tmp_path, COPY + replicate, f"{JOB}{live}")
    copy = found.job("orders@staging")
    assert (copy.name, copy.checkpoint) == ("orders-staging", "file:///staging/orders")
    assert copy.queries == {"main": "file:///staging/orders"}
    assert copy.repository == "file:///staging/orders.savepoints"
    assert copy.control == "file:///staging/orders.savepoints.control"
    assert copy.standby is None and copy.replicate.to == () and copy.copies == {} and copy.notify == ()
    assert copy.original == found.job("orders") and copy.application == found.job("orders").application
    assert found.job("orders").copies["staging"] == CopyPolicy(
        "staging",
        "file:///staging/orders",
        {
            "file:///out": "file:///staging/out",
            "orders_out": "file:///staging/topic",
            (tmp_path / "rel").as_uri(): "file:///staging/rel",
        },
    )
    assert found.job("orders@standby").site == "standby", "sites are still named so"


def test_a_copy_samples_hot_keys_only_as_it_declares_itself(tmp_path: Path) -> None:
    job = f"{JOB}[jobs.orders.hot_keys]\nsample = 0.5\n"
    found = declared(tmp_path, COPY, job)
    assert found.job("orders").hot_keys is not None
    assert found.job("orders@staging").hot_keys is None
    own = "[jobs.orders.copies.staging.hot_keys]\nsample = 0.25\n"
    assert declared(tmp_path, COPY + own, job).job("orders@staging").hot_keys == HotKeysPolicy(sample=0.25)
    state = '[jobs.orders.copies.look]\ncheckpoint = "file:///look"\n[jobs.orders.copies.look.hot_keys]\n'
    with pytest.raises(InputError, match="no application runs on a copy of the state alone"):
        declared(tmp_path, state)


def test_each_query_has_its_own_checkpoint(tmp_path: Path) -> None:
    copy = declared(tmp_path, COPY, f'{JOB}queries = ["hours", "days"]\n').job("orders@staging")
    assert copy.queries == {"hours": "file:///staging/orders/hours", "days": "file:///staging/orders/days"}


def test_a_copy_that_is_not_declared(tmp_path: Path) -> None:
    found = declared(tmp_path, COPY)
    with refuses(InputError, "no-such-site", hint="staging"):
        found.job("orders@production")
    with refuses(NotFoundError, "no-such-copy"):
        found.job("orders").as_copy("production")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("staging/orders", "ck/orders", "not apart from the checkpoint"),
        ("staging/orders", "ck/orders/copy", "not apart from the checkpoint"),
        ("staging/orders", "ck/orders.g0007", "not apart from the checkpoint"),
        ("staging/orders", "s/copy", "not apart from the repository"),
        ("staging/orders", "s.control", "not apart from the control location"),
        ("staging/orders", "out/copy", "not apart from an output"),
        ("file:///staging/out", "file:///out/copy", "not apart from an output"),
        ("file:///staging/out", "file:///ck", "not apart from the checkpoint"),
        ("file:///staging/out", "file:///staging/orders/out", "of the same copy"),
        ("file:///staging/out", "file:///staging/topic", "of the same copy"),
        ("copies.staging", "copies.primary", "the name of a site"),
        ("copies.staging", 'copies."a/b"', "cannot be the name of a copy"),
        ("checkpoint", "place", "checkpoint: it is missing"),
    ],
)
def test_what_would_touch_the_live_job_is_a_mistake(tmp_path: Path, old: str, new: str, what: str) -> None:
    assert old in COPY
    assert what in mistake(declared, tmp_path, COPY.replace(old, new, 1))


def test_two_copies_share_nothing(tmp_path: Path) -> None:
    other = '[jobs.orders.copies.analysis]\ncheckpoint = "file:///{}"\n'
    assert set(declared(tmp_path, COPY + other.format("analysis")).job("orders").copies) == {
        "staging",
        "analysis",
    }
    inside = COPY + other.format("staging/orders/x")
    assert "not apart from the copy staging" in mistake(declared, tmp_path, inside)


def test_no_other_job_has_the_name_or_the_checkpoint_of_a_copy(tmp_path: Path) -> None:
    """A cluster finds drivers by the name of their job."""
    other = '[jobs.{}]\napplication = "a.py"\ncheckpoint = "file:///{}"\n'
    declared(tmp_path, COPY + other.format("trains", "ck/trains"))
    named, placed = other.format("orders-staging", "ck/trains"), other.format("trains", "staging/orders/x")
    assert "orders-staging" in mistake(declared, tmp_path, COPY + named)
    assert "inside the checkpoint" in mistake(declared, tmp_path, COPY + placed)


def test_a_cluster_must_take_its_name(tmp_path: Path) -> None:
    name = "o" * 45
    job = JOB.replace("jobs.orders", f"jobs.{name}") + (
        'master = "k8s://h"\n'
        'launch = { on = "kubernetes", deploy_mode = "cluster", image = "i", entry = "e" }\n'
    )
    copy = COPY.replace("jobs.orders", f"jobs.{name}")
    declared(tmp_path, "", job)
    assert "Kubernetes" in mistake(declared, tmp_path, copy, job)


def test_defaults_declare_no_copies(tmp_path: Path) -> None:
    everywhere = COPY.replace("jobs.orders.copies", "defaults.copies")
    assert "belongs to a job" in mistake(declared, tmp_path, everywhere)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("file:///a", "file:///ab", True),
        ("file:///a", "file:///a.golden", True),
        ("file:///a", "file:///a.g0002", False),
        ("file:///a.g0002/x", "file:///a", False),
        ("file:///a.g0002.work", "file:///a", False),
        ("file:///a", "file:///a/b", False),
        ("s3://b/a", "s3://b/a", False),
    ],
)
def test_generations_belong_to_their_directory(one: str, other: str, apart: bool) -> None:
    assert are_apart(one, other) is apart


TWO = """
[jobs.trains]
application = "a.py"
checkpoint = "file:///ck/trains"
standby = { checkpoint = "file:///there/ck", repository = "file:///there/s", outputs = { "/t" = "/there/t" } }
[jobs.trains.replicate]
to = ["file:///there/s"]
[jobs.trains.copies.staging]
checkpoint = "file:///staging/trains"
repository = "file:///elsewhere/s"
control = "file:///records"
outputs = { "file:///trains" = "file:///staging/out2" }
"""


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("/staging/out2", "/staging/out", "the output file:///staging/out of the copy staging of job trains"),
        (
            "/staging/out2",
            "/staging/out.g0007/x",
            "file:///staging/out.g0007/x of the copy staging of job trains",
        ),
        ("/staging/out2", "/ck/orders/x", "the checkpoint file:///ck/orders of job orders"),
        ("/staging/out2", "/ck/orders.g0002", "the checkpoint file:///ck/orders of job orders"),
        ("/staging/out2", "/ck", "the checkpoint file:///ck/"),
        ("/staging/out2", "/out", "the output file:///out of job orders"),
        (
            "/staging/out2",
            "/staging/orders.savepoints/x",
            "file:///staging/orders.savepoints/x of the copy staging",
        ),
        ("/staging/out2", "/there/ck/x", "the checkpoint file:///there/ck of the standby of job trains"),
        ("/staging/out2", "/there/t", "the output file:///there/t of the standby of job trains"),
        ("/staging/out2", "/there/s.control", "the control location .* of the standby of job trains"),
        ("/staging/out2", "/elsewhere/s", "the repository file:///elsewhere/s of job trains"),
        ("file:///records", "file:///out", "the output file:///out of job orders"),
    ],
)
def test_a_copy_is_apart_from_other_jobs_sites_and_copies(
    tmp_path: Path, old: str, new: str, what: str
) -> None:
    assert old in TWO
    declared(tmp_path, COPY + TWO)
    said = mistake(declared, tmp_path, COPY + TWO.replace(old, new, 1))
    assert re.search(f"jobs.*is not apart from .*{what}", said)


def test_two_copies_share_a_control_location_and_links_are_followed(tmp_path: Path) -> None:
    control = COPY.replace(
        "[jobs.orders.copies.staging.outputs]", 'control = "file:///records"\n[{}.outputs]'
    )
    shared = control.replace("{}", "jobs.orders.copies.staging")
    declared(tmp_path, shared + TWO)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    linked = COPY.replace("/staging/out", f"{tmp_path}/real")
    with pytest.raises(InputError, match="is not apart from the output"):
        declared(tmp_path, linked + TWO.replace("/staging/out2", f"{tmp_path}/link/x"))


def test_an_output_is_named_once(tmp_path: Path) -> None:
    assert "is named twice" in mistake(declared, tmp_path, COPY + '"/out/" = "file:///staging/again"\n')
    more = '"s3://b/o" = "file:///staging/x"\n"s3a://b/o" = "file:///staging/y"\n'
    assert "s3a://b/o is named twice" in mistake(declared, tmp_path, COPY + more)


def test_only_a_job_with_copies_promises_their_age_or_is_alerted_of_them(tmp_path: Path) -> None:
    age = '[jobs.orders.sla]\ncopy_age = {breach = "1d"}\n'
    found = declared(tmp_path, COPY + age)
    assert "copy_age" in found.job("orders").sla.objectives
    assert "copy_age" not in found.job("orders@staging").sla.objectives, "a copy has no copies"
    assert "declares no copies" in mistake(declared, tmp_path, age)
    inherited = declared(tmp_path, age.replace("jobs.orders", "defaults"))
    assert "copy_age" not in inherited.job("orders").sla.objectives
    off = declared(tmp_path, "[jobs.orders.sla]\ncopy_age = false\n").job("orders").sla.objectives
    assert off["copy_age"].off
    notify = '[[jobs.orders.notify]]\nclass = "a.B"\nkinds = ["refresh-failed"]\n'
    declared(tmp_path, COPY + notify)
    assert "refresh-failed would never be sent" in mistake(declared, tmp_path, notify)
