"""The verbs `advise` and `plan-memory`."""

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
        (("plan-memory", "--state-size", "1g", "--ttl", "1h"), "usage", "--state-size"),
        (("plan-memory", "--keys", 10, "--window", "1h"), "bad-input", "watermark"),
        (("plan-memory", "--write-buffer-ratio", 0.95), "bad-input", "below 1"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_said(words: tuple[str | int, ...], code: str, said: str) -> None:
    answer = streambank(*words, "--json")
    assert answer.code == 2
    assert answer.document["error"] == code
    assert said in answer.document["message"] and answer.document["hint"]


def test_memory_is_calculated_by_part() -> None:
    found = succeed(
        "plan-memory", "--partitions", 64, "--executors", 4, "--keys", 50_000_000, "--json"
    ).document
    assert found["instances"] == 16 and found["instances_after_loss"] == 22
    assert [one["part"] for one in found["parts"]] == ["write buffers", "block cache", "indexes", "filters"]
    assert found["state"]["bytes"] == 5_000_000_000
    text = succeed("plan-memory", "--partitions", 64, "--executors", 4, "--keys", 50_000_000).out
    assert "spark.executor.memoryOverhead" in text and "warning: Memory is not bounded" in text


def test_without_a_state_only_the_settings_count() -> None:
    found = succeed("plan-memory", "--partitions", 4, "--bounded", "--max-memory", "100m", "--json").document
    assert found["state"] is None and found["expected_bytes"] is None
    assert found["most_bytes"] == 100 << 20
    assert "not given" in succeed("plan-memory", "--partitions", 4).out


def test_the_classic_example() -> None:
    words = ("--partitions", 1, "--column-families", 3, "--write-buffer", "128m", "--state-size", "10g")
    found = succeed("plan-memory", *words, "--json").document
    assert found["parts"][0]["executor_bytes"] == 768 << 20
    assert found["expected_bytes"] == found["most_bytes"]


def test_the_state_is_estimated_before_a_job_runs() -> None:
    words = ("--window", "10m", "--slide", "5m", "--watermark", "15m", "--events-per-second", 5000)
    found = succeed(
        "plan-memory", *words, "--keys", 100_000, "--row-bytes", 80, "--trigger", "10s", "--json"
    ).document
    assert found["estimate"]["windows"] == 6
    assert found["state"]["rows"] == found["estimate"]["rows"] > 400_000
    assert 0 < found["state"]["update_share"] < 1
    text = succeed("plan-memory", *words, "--keys", 100_000).out
    assert "A window of 600 s lives until the watermark" in text


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
