"""`streambank expire`, `undelete` and `sweep`: answers, exit codes, and policies out of a jobs file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streambank.repository.marks import PIN, add_mark
from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.cli import streambank, succeed
from tests.support.repository.retention import HOUR_S, content, store_and_list
from tests.support.time_travel import Clock, time_travel

JOBS = """
repository = "{folder}/repository"

[defaults.retention]
keep_daily = 7

[jobs.orders]
application = "app.py"
checkpoint = "{folder}/checkpoint"
{more}
"""


@pytest.fixture
def clock() -> Iterator[Clock]:
    with time_travel() as clock:
        yield clock


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Path:
    """Three savepoints of one job, and one of another."""
    monkeypatch.setenv("STREAMBANK_REPOSITORY", str(tmp_path / "repository"))
    monkeypatch.delenv("STREAMBANK_JOBS", raising=False)
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    for batch in range(3):
        store_and_list(repository, {"offsets": b"%d" % batch * 900}, batch, job="orders/late")
    store_and_list(repository, {"offsets": b"other"}, 7, job="flights")
    return tmp_path


def jobs_file(folder: Path, more: str) -> Path:
    file = folder / "streaming_jobs.toml"
    file.write_text(JOBS.format(folder=folder, more=more))
    return file


def listed() -> list[str]:
    return [each["savepoint"][:7] for each in succeed("list", "--json").document]


def test_a_table_with_a_reason_for_each() -> None:
    dry = succeed("expire", "--keep-last", 1, "--job", "orders", "--dry-run").out.splitlines()
    assert dry[0].split() == ["job", "savepoint", "taken", "at", "(UTC)", "verdict", "why"]
    assert dry[1].startswith("orders/late  b000002") and dry[1].endswith(
        "keep        last: one of the last 1"
    )
    assert dry[3].endswith("would drop  last: not one of the last 1")
    assert dry[4] == "1 kept, 2 savepoints would be dropped. Nothing was changed."
    assert len(listed()) == 4
    done = succeed("expire", "--keep-last", 1, "--job", "orders")
    assert "1 kept, 2 savepoints dropped: `streambank undelete`" in done.out
    assert "expire: 2/2 files" in done.err
    assert listed() == ["b000007", "b000002"]
    assert "2 kept, none dropped." in succeed("expire", "--keep-last", 1).out


def test_from_expire_to_sweep(folder: Path, clock: Clock) -> None:
    repository = folder / "repository"
    succeed("expire", "--keep-last", 1)
    assert "b000001" in succeed("sweep", "--grace", "2h").out
    assert succeed("undelete", "b000001").out.endswith("of orders/late is listed again.\n")
    assert succeed("undelete", "b000001", "--json").document["already_listed"]
    files = len(content(open_store(repository)))
    clock.advance(3 * HOUR_S, repository)
    said = succeed("sweep", "--grace", "2h").out
    assert (
        "Can no longer be brought back: orders/late/b000000" in said
        and "pending delete         1 file" in said
    )
    gone = streambank("undelete", "b000000")
    assert gone.code == 3 and "not kept" not in gone.err and "No expired savepoint b000000" in gone.err
    clock.advance(3 * HOUR_S, repository)
    answer = succeed("sweep", "--grace", "2h", "--json")
    assert answer.document["deleted"]["files"] == 1 and "delete: 1/1 files" in answer.err
    assert len(content(open_store(repository))) == files - 1
    assert listed() == ["b000007", "b000001", "b000002"]


def test_what_can_be_brought_back_and_until_when(folder: Path) -> None:
    assert "No expired savepoints." in succeed("list", "--expired").out
    repository = Repository.open(open_store(folder / "repository"))
    succeed("expire", "--keep-last", 1)
    first, second = succeed("list", "--expired", "--grace", "2h", "--json").document
    assert (first["job"], first["savepoint"][:7], first["batch"]) == ("orders/late", "b000000", 0)
    expired_at, until = (datetime.fromisoformat(first[name]) for name in ("expired_at", "until"))
    assert until - expired_at == timedelta(hours=2)
    assert abs(datetime.now(UTC) - expired_at) < timedelta(minutes=10)
    assert second["savepoint"][:7] == "b000001"
    assert [
        each["batch"] for each in succeed("list", "--expired", "--job", "flights", "--json").document
    ] == []
    (copy,) = (folder / "repository/expired/orders/late" / first["savepoint"]).iterdir()
    copy.write_bytes(copy.read_bytes()[:-5])
    add_mark(repository.store, "blake3", "orders/late", second["savepoint"], PIN, fields={"pinned": True})
    lines = succeed("list", "--expired").out.splitlines()
    assert lines[0].split()[:3] == ["job", "savepoint", "batch"] and len(lines) == 3
    assert "damaged: " in lines[1] and "it is pinned" in lines[2]
    succeed("undelete", second["savepoint"])
    assert len(succeed("list", "--expired", "--json").document) == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("list", "--grace", "2h"), "usage"),
        (("list", "--expired", "--grace", "soon"), "bad-duration"),
        (("expire",), "empty-policy"),
        (("expire", "--min-verified", 3), "empty-policy"),
        (("expire", "--keep-last", 0), "empty-policy"),
        (("expire", "--keep-last", -1), "bad-policy"),
        (("expire", "--keep-within", "7"), "bad-duration"),
        (("expire", "--max-age", "0d"), "bad-policy"),
        (("expire", "--keep-daily", 1, "--time-zone", "Europe/Berln"), "bad-time-zone"),
        (("sweep", "--grace", "5m"), "grace-too-short"),
        (("sweep", "--grace", "soon"), "bad-duration"),
    ],
)
def test_mistakes(arguments: tuple[str | int, ...], code: str) -> None:
    answer = streambank(*arguments, "--json")
    assert (answer.code, answer.document["error"]) == (2, code)
    assert len(listed()) == 4


def test_declared_policies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = jobs_file(folder, "[jobs.orders.retention]\nkeep_daily = 1\nkeep_within = '30m'\nmin_verified = 2")
    found = succeed("expire", "--jobs", own, "--dry-run", "--json").document
    assert [(each["savepoint"][:7], each["keep"]) for each in found["savepoints"]] == [
        ("b000002", True), ("b000001", True), ("b000000", False),
    ]  # fmt: skip
    assert [reason["rule"] for reason in found["savepoints"][1]["reasons"]] == ["min-verified"]
    monkeypatch.setenv("STREAMBANK_JOBS", str(own))
    assert succeed("expire", "--job", "orders", "--min-verified", 0).out.count("dropped") == 3
    assert listed() == ["b000007", "b000002"]
    assert streambank("expire", "--job", "flights").code == 3  # it is not declared
    assert succeed("expire", "--job", "flights", "--keep-last", 1).code == 0  # rules win over the file


def test_calendars_go_by_the_declared_time_zone_or_the_named_one(folder: Path) -> None:
    own = jobs_file(folder, 'time_zone = "Asia/Tokyo"')
    for arguments, zone in (
        (("--jobs", own), " (Asia/Tokyo)"),
        (("--jobs", own, "--keep-daily", 7), " (Asia/Tokyo)"),
        (("--jobs", own, "--time-zone", "Europe/Berlin"), " (Europe/Berlin)"),
        (("--keep-daily", 7, "--time-zone", "Europe/Berlin"), " (Europe/Berlin)"),
        (("--keep-daily", 7), ""),
    ):
        found = succeed("expire", *arguments, "--job", "orders", "--dry-run", "--json").document["savepoints"]
        assert re.fullmatch(r"the newest of \d{4}-\d\d-\d\d" + re.escape(zone), found[0]["reasons"][0]["why"])


def test_a_limit_of_age_overrules_a_pin_and_says_so(folder: Path) -> None:
    name = succeed("list", "--json").document[1]["savepoint"]
    succeed("pin", name)
    more = "[jobs.orders.retention]\nkeep_last = 9\nmax_age = '90d'"
    for where in (("--max-age", "90d", "--job", "orders"), ("--jobs", jobs_file(folder, more))):
        dry = succeed("expire", *where, "--dry-run").out
        assert f"WARNING: max-age overrides pins, so these savepoints would go: orders/late/{name}." in dry
    found = succeed("expire", "--jobs", jobs_file(folder, more), "--json").document
    assert (found["dropped"], found["overruled"]) == (3, 3)
    assert found["savepoints"][-1]["overrules"] == ["pinned", "last"]
    assert listed() == ["b000007"]


def test_declared_rules_of_a_replica(folder: Path) -> None:
    replica = folder / "replica"
    succeed("replicate", "--to", replica)
    succeed("expire", "--keep-last", 1)
    more = '[jobs.orders.replicate]\nto = ["replica"]\nretention.keep_last = 2'
    what = ("expire", "-r", replica, "--replica-of", folder / "repository", "--jobs")
    refused = streambank(*what, jobs_file(folder, ""))
    assert refused.code == 2 and "[jobs.NAME.replicate.retention]" in refused.err
    file = jobs_file(folder, more)
    done = succeed(*what, file, "--json")
    assert [(each["savepoint"][:7], each["keep"]) for each in done.document["savepoints"]] == [
        ("b000002", True), ("b000001", True), ("b000000", False),
    ]  # fmt: skip
    assert [each["rule"] for each in done.document["savepoints"][0]["reasons"]] == ["last", "source"]


def test_a_declaration_without_a_policy(folder: Path) -> None:
    file = jobs_file(folder, "")
    file.write_text(file.read_text().replace("keep_daily = 7", "").replace("[defaults.retention]", ""))
    for arguments in ((), ("--job", "orders")):
        answer = streambank("expire", "--jobs", file, *arguments)
        assert answer.code == 2 and "[jobs.NAME.retention]" in answer.err


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("keep_lats = 3", "Did you mean keep_last?"),
        ("keep_last = 0", "at least 1"),
        ("keep_daily = 0", "at least 1"),
        ("keep_within = 7", "a duration"),
        ("max_age = '0d'", "longer than 0 s"),
        ("min_verified = -1", "at least 0"),
    ],
)
def test_a_declared_policy_is_checked(folder: Path, table: str, what: str) -> None:
    answer = streambank("expire", "--jobs", jobs_file(folder, f"[jobs.orders.retention]\n{table}"))
    assert answer.code == 2 and what in answer.err, answer.err
    assert "jobs.orders.retention" in answer.err


def test_a_policy_that_keeps_nothing_is_a_mistake_of_the_file(folder: Path) -> None:
    file = jobs_file(folder, "[jobs.orders.retention]\nmin_verified = 2")
    file.write_text(file.read_text().replace("keep_daily = 7", ""))
    answer = streambank("expire", "--jobs", file)
    assert answer.code == 2 and "it keeps nothing" in answer.err


def test_a_damaged_manifest_is_kept_and_told(folder: Path) -> None:
    (path,) = (folder / "repository/savepoints/orders/late").glob("b000000*")
    path.write_bytes(path.read_bytes()[:-5])
    answer = streambank("expire", "--keep-last", 1)
    assert answer.code == 1 and "unreadable: never dropped unread" in answer.out
    assert "b000000" in listed()
    refused = streambank("sweep")
    assert refused.code == 5 and "Nothing is swept" in refused.err and "b000000" in refused.err
