from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from streambank.core.python310 import UTC
from streambank.overview.plain import PART_BYTES, Plain, digest_of, fitted, rounded, shortened, size_of
from tests.support.jobs.declared import declare

PLAIN = Plain({"DB_PASSWORD": "swordfish77", "PATH": "/usr/bin/swordfish"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no login with swordfish77", "no login with ***"),
        ("s3://ann:geheim@lake/x and s3://lake/y", "s3://lake/x and s3://lake/y"),
        ("https://ann@host:81/x?sig=abc&y=1, and more?", "https://host:81/x and more?"),
        ("jdbc:postgresql://u:p@h/db?user=x", "jdbc:postgresql://h/db"),
        ("s3a://key:ab/cd@bucket/x", "s3a://bucket/x"),
        ("s3a://key:12/cd@bucket/x", "s3a://bucket/x"),
        ("abfss://box@acc.dfs.core.windows.net/x@1", "abfss://box@acc.dfs.core.windows.net/x@1"),
        ("hdfs://nn:8020/x/date@2024-01-01", "hdfs://nn:8020/x/date@2024-01-01"),
        ("https://hooks.slack.com/services/T0/B0/xyz", "https://hooks.slack.com/services/***"),
        ("jdbc:oracle:thin:scott/tiger@db:1521:x", "jdbc:oracle:thin:@db:1521:x"),
        ("file:///data/what?/a@b", "file:///data/what?/a@b"),
        ("one\n  two\r\nthree\tfour", "one two three    four"),
        ("\x1b[31mred\u202e", "\ufffd[31mred\ufffd"),
        ("<b>&amp;</b>", "<b>&amp;</b>"),
        ("/usr/bin/swordfish", "/usr/bin/swordfish"),
    ],
)
def test_a_text_is_plain_and_has_no_secret(text: str, shown: str) -> None:
    assert PLAIN.text(text) == shown == PLAIN.text(shown)


def test_a_text_is_not_too_long() -> None:
    assert len(PLAIN.text("x" * 10_000_000)) == 500 and PLAIN.text("x" * 501).endswith("x\u2026")
    assert shortened("abcdef", 6) == "abcdef" and shortened("abc efg", 5) == "abc\u2026"
    assert "swordfish77" not in PLAIN.text("x" * 480 + " password is swordfish77", 500)


def test_values_become_json_that_any_reader_understands() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    odd = {
        1: (1, 2.5, math.inf, math.nan, True, None),
        "at": datetime(2026, 11, 1, tzinfo=UTC),
        "error": ValueError("swordfish77"),
        "swordfish77": {"a"},
        "by": {"user": "ann", "api_key": "of ann's"},
        "deep": deep,
    }
    found = PLAIN.json(odd)
    json.dumps(found, allow_nan=False)
    assert found["1"] == [1, 2.5, None, None, True, None] and found["at"] == "2026-11-01T00:00:00.000Z"
    assert found["by"] == {"user": "ann", "api_key": "***"}
    assert found["error"] == "***" and found["***"] == ["a"]
    assert "\\u2026" in json.dumps(found["deep"])


def test_numbers_have_four_digits() -> None:
    assert [rounded(one) for one in (0.0, 1234567.0, 0.00012346, 12.0, -3.14159)] == [
        0,
        1235000,
        0.0001235,
        12,
        -3.142,
    ]


def test_a_part_loses_the_end_of_its_largest_list() -> None:
    part = {"at": "x", "error": None, "few": [1, 2], "many": [{"a": "b" * 400}] * 5000, "more": 3}
    found = fitted(dict(part))
    assert size_of(found) <= PART_BYTES and found["few"] == [1, 2]
    assert len(found["many"]) > 400 and found["more"] == 3 + 5000 - len(found["many"])
    assert fitted({"at": "x", "small": [1]}) == {"at": "x", "small": [1]}
    one = fitted({"manifests": {"a": ["x" * 500] * 1000}})
    assert one == {"manifests": {}, "more": 1}


def test_of_events_the_newest_stay() -> None:
    events = [{"number": number, "why": "b" * 4000} for number in range(200)]
    found = fitted({"events": events})
    assert found["events"][-1]["number"] == 199 and len(found["events"]) + found["more"] == 200
    assert fitted({"events": ["x" * PART_BYTES]}) == {"events": [], "more": 1}


def test_a_digest_is_of_the_content_alone() -> None:
    first, second = {"at": "1", "a": 1, "b": 2}, {"b": 2, "a": 1, "at": "2"}
    assert digest_of(first) == digest_of(second) != digest_of({"at": "1", "a": 1, "b": 3})
    assert len(digest_of(first)) == 16


def test_secrets_of_a_job_are_those_of_its_settings_and_arguments(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_LOGIN", "from-the-variable")
    monkeypatch.setenv("DB_URL", "postgresql://ann:in-the-address@db/x")
    more = """
[jobs.flights.kafka.config]
"sasl.password" = "${KAFKA_LOGIN}"
[[jobs.flights.sinks]]
kind = "ledger"
table = "batches"
url = "${DB_URL}"
"""
    job = declare(
        folder, "--db-password", "behind-it", "--token=behind-equals", "--mode", "harmless", more=more
    )
    words = "from-the-variable in-the-address behind-it behind-equals harmless"
    assert Plain.of_job(job).text(words) == "*** *** *** *** harmless"


def test_equal_names_of_secrets_do_not_hide_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"FIRST": "first-pass", "SECOND": "second-pass", "URL": "jdbc:postgresql://ann:in%2Fjdbc@db/x"}
    secrets["KEYS"] = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    more = """
[jobs.flights.kafka.config]
"ssl.keystore.private.key" = "${KEYS}"
[[jobs.flights.sinks]]
kind = "delta"
table = "lake/a"
writer = "w"
options = {"password" = "${FIRST}"}
[[jobs.flights.sinks]]
kind = "delta"
table = "lake/b"
writer = "w"
options = {"password" = "${SECOND}"}
[[jobs.flights.sinks]]
kind = "ledger"
table = "batches_by_path"
url = "${URL}"
"""
    job = declare(folder, "--token", "token-a", "--token", "token-b", "--url", "x://u:in-args@h", more=more)
    plain = Plain.of_job(job)
    words = "first-pass second-pass in%2Fjdbc in/jdbc token-a token-b in-args"
    assert plain.text(words) == "*** *** *** *** *** *** ***"
    assert [plain.text(line) for line in secrets["KEYS"].splitlines()[1:3]] == ["***", "***"]
