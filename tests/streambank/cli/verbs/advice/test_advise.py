"""The verb `advise`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import declare
from tests.support.paths import ROOT

RECORD = ROOT / "tests/data/progress/4.3.0/hourly-delays/0000000001.jsonl"
LARGE = ("--keys", 5_000_000, "--update-share", "0.1", "--executors", 4, "--cores", 4)


def test_much_state_gets_a_store_with_settings_and_measurements() -> None:
    found = succeed("advise", *LARGE, "--latency", "1s", "--json").document
    assert found["store"].startswith("rocksdb")
    assert found["asked"]["partitions"] == 16 and found["asked"]["state_bytes"] == 500_000_000
    assert found["expected"][0]["store"] == found["store"]
    assert all(one["text"] and one["measurement"] for one in found["reasons"] + found["settings"])
    assert found["measured_with"]["command"].startswith("python -m bench.stores")
    assert found["memory"]["memory_overhead_bytes"] > 0
    assert found["unknown"]


def test_the_settings_can_be_pasted(tmp_path: Path) -> None:
    text = succeed("advise", *LARGE).out
    lines = text.splitlines()
    begin = next(at for at, one in enumerate(lines) if "[jobs.NAME.spark]" in one)
    table = "\n".join(lines[begin + 1 : lines.index("", begin)])
    declared = tomllib.loads(table)
    assert declared["spark.sql.shuffle.partitions"] == "16"
    plain = next(at for at, one in enumerate(lines) if "spark-defaults.conf" in one)
    pasted = dict(one.split(" ") for one in lines[plain + 1 : lines.index("", plain)])
    assert pasted == declared
    job = declare(tmp_path, more=f"[jobs.flights.spark]\n{table}\n")
    assert job.spark["spark.sql.shuffle.partitions"] == "16"
    assert "not known: " in text and "measured: " in text


def test_a_size_can_be_given_in_place_of_keys() -> None:
    found = succeed("advise", "--state-size", "10g", "--row-bytes", 200, "--json").document["asked"]
    assert (found["keys"], found["row_bytes"]) == (53_687_091, 200)
    found = succeed("advise", "--state-size", "10GB", "--keys", 50_000_000, "--json").document["asked"]
    assert (found["keys"], found["row_bytes"]) == (50_000_000, 200)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("advise",), "usage", "How large the state is"),
        (("advise", "--job", "orders"), "usage", "--jobs"),
        (("advise", "--state-size", "ten"), "bad-size", "ten"),
        (("advise", "--keys", 10, "--latency", "fast"), "bad-duration", "fast"),
        (("advise", "--keys", 10, "--update-share", 2), "bad-input", "--update-share"),
        (("advise", "--keys", 10, "--update-share", 0), "bad-input", "--update-share"),
        (("advise", "--keys", 10, "--row-bytes", 10, "--state-size", "1g"), "usage", "--state-size"),
        (("advise", "--keys", 10, "--update-share", "nan"), "bad-input", "--update-share"),
        (("advise", "--keys", 10, "--update-share", "inf"), "bad-input", "--update-share"),
        (("advise", "--keys", 10, "--update-share", -0.5), "bad-input", "--update-share"),
        (("advise", "--keys", 10**16), "bad-input", "--keys"),
        (("advise", "--keys", 0), "usage", "--keys"),
        (("advise", "--keys", 10, "--latency", "0s"), "bad-input", "--latency"),
        (("advise", "--keys", 10, "--state-size", "5B"), "bad-input", "less than one byte"),
        (("advise", "--state-size", "0g"), "bad-input", "--state-size"),
        (("advise", "--keys", 10, "--executor-memory", "0g"), "bad-input", "--executor-memory"),
        (("advise", "--keys", 10, "--python-worker", "0m"), "bad-input", "--python-worker"),
        (("advise", "--keys", 10, "--jobs", "streaming_jobs.toml"), "usage", "--jobs needs --job"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_said(words: tuple[str | int, ...], code: str, said: str) -> None:
    answer = streambank(*words, "--json")
    assert answer.code == 2
    assert answer.document["error"] == code
    assert said in answer.document["message"] and answer.document["hint"]


def test_a_jobs_file_of_the_environment_may_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMBANK_JOBS", "streaming_jobs.toml")
    assert succeed("advise", "--keys", 10, "--json").document["job"] is None


def test_python_workers_are_counted_if_one_says_what_they_take() -> None:
    without = succeed("advise", *LARGE, "--json").document
    assert any("Python workers" in one for one in without["unknown"])
    found = succeed("advise", *LARGE, "--python-worker", "200m", "--json").document
    assert not any("Python workers" in one for one in found["unknown"])
    memory, before = found["memory"], without["memory"]
    assert memory["python_bytes"] == 4 * 200 << 20  # one works for each core
    added = memory["memory_overhead_bytes"] - before["memory_overhead_bytes"]
    assert added in (768 << 20, 832 << 20)  # it goes in steps of 64 MiB
    text = next(one["text"] for one in found["settings"] if one["name"] == "spark.executor.memoryOverhead")
    assert "800 MiB for 4 Python worker(s)" in text


def test_a_job_that_never_ran_gives_its_settings_only(tmp_path: Path) -> None:
    declare(tmp_path, more='[jobs.flights.spark]\n"spark.sql.shuffle.partitions" = 6\n')
    of = ("--job", "flights", "--jobs", tmp_path / "streaming_jobs.toml", "--json")
    answer = streambank("advise", *of)
    assert answer.document["error"] == "no-history" and "--keys" in answer.document["hint"]
    found = succeed("advise", *of, "--keys", 1000).document
    assert found["asked"]["partitions"] == 6 and "batch" not in found["job"]


def test_a_job_says_what_is_not_given(tmp_path: Path) -> None:
    job = declare(tmp_path, more='[jobs.flights.spark]\n"spark.executor.cores" = 2\n')
    job.records().store.write("progress/main/0000000001.jsonl", RECORD.read_bytes())
    of = ("--job", "flights", "--jobs", tmp_path / "streaming_jobs.toml")
    found = succeed("advise", *of, "--json").document
    assert found["job"]["name"] == "flights" and found["job"]["rows"] == found["asked"]["keys"]
    assert found["asked"]["cores"] == 2 and found["asked"]["partitions"] == 2
    assert succeed("advise", *of, "--keys", 7, "--json").document["asked"]["keys"] == 7
    planned = succeed("plan-memory", *of, "--json").document
    assert (planned["partitions"], planned["stores"]) == (2, 1)
    assert "[jobs.flights.spark]" in succeed("advise", *of).out
