"""The verb `plan-memory`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streambank.declaration.load import load_jobs
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import write_jobs
from tests.support.paths import ROOT

RECORD = ROOT / "tests/data/progress/4.3.0/hourly-delays/0000000001.jsonl"
STATE = "spark.sql.streaming.stateStore."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = f"""
"{STATE}providerClass" = "{ROCKSDB}"
"{STATE}rocksdb.writebuffersizemb" = 32
"{STATE}rocksdb.maxWriteBufferNumber" = -1
"{STATE}rocksdb.blockCacheSizeMB" = 16
"{STATE}rocksdb.changelogCheckpointing.enabled" = true
"{STATE}minDeltasForSnapshot" = 4
"spark.executor.instances" = 3
"spark.executor.cores" = 2
"spark.executor.memory" = "4g"
"spark.executor.memoryOverhead" = "512m"
"spark.sql.shuffle.partitions" = 48
"""


def job_of(folder: Path, settings: str = SETTINGS, more: str = 'master = "yarn"\n') -> tuple[str | Path, ...]:
    """A declared job with these settings, as options name it."""
    file = write_jobs(folder, more=f"{more}[jobs.flights.spark]\n{settings}")
    return ("--job", "flights", "--jobs", file)


def values(document: dict[str, Any]) -> dict[str, tuple[float, str]]:
    return {one["option"] or one["setting"]: (one["value"], one["from"]) for one in document["values"]}


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


def test_the_settings_of_a_job_are_read(tmp_path: Path) -> None:
    found = succeed("plan-memory", *job_of(tmp_path), "--keys", 1_000_000, "--json").document
    assert values(found) == {
        "--keys": (1_000_000, "option"),
        "--row-bytes": (100, "default"),
        "--key-bytes": (40, "default"),
        "--executors": (3, "job"),
        "--cores": (2, "job"),
        "--partitions": (48, "job"),
        "--stores": (1, "default"),
        "--executor-memory": (4 << 30, "job"),
        "spark.executor.memoryOverhead": (512 << 20, "job"),
        "--bounded": (False, "spark"),
        "--changelog": (True, "job"),
        "--min-deltas": (4, "job"),
        "--write-buffer": (32 << 20, "job"),
        "--write-buffers": (2, "spark"),  # -1 leaves RocksDB's
        "--block-size": (4096, "spark"),
        "--column-families": (1, "default"),
        "--block-cache": (16 << 20, "job"),
    }
    assert found["job"]["provider"] == "rocksdb"
    assert found["instances"] == 16
    assert found["parts"][0]["most_bytes"] == 16 * 2 * 32 << 20
    assert any("has 512 MiB beside its heap, and 2," in one for one in found["warnings"])


def test_an_option_wins_over_the_job(tmp_path: Path) -> None:
    of = job_of(tmp_path)
    more = ("--write-buffer", "8m", "--executors", 6, "--bounded", "--max-memory", "1g", "--json")
    found = values(succeed("plan-memory", *of, *more).document)
    assert found["--write-buffer"] == (8 << 20, "option") and found["--executors"] == (6, "option")
    assert found["--max-memory"] == (1 << 30, "option") and "--block-cache" not in found
    bounded = job_of(tmp_path, f'"{STATE}rocksdb.boundedMemoryUsage" = true\n')
    assert values(succeed("plan-memory", *bounded, "--json").document)["--bounded"] == (True, "job")
    off = values(succeed("plan-memory", *bounded, "--unbounded", "--json").document)
    assert off["--bounded"] == (False, "option") and "--block-cache" in off


def test_the_source_of_each_value_is_shown(tmp_path: Path) -> None:
    lines = succeed("plan-memory", *job_of(tmp_path), "--cores", 4).out.splitlines()
    shown = {one.split()[0]: " ".join(one.split()[1:]) for one in lines if one.startswith("--")}
    assert shown["--cores"] == "4 the option"
    assert shown["--executors"] == "3 spark.executor.instances of job flights"
    assert shown["--block-size"] == f"4 KiB Spark's default of {STATE}rocksdb.blockSizeKB"
    assert shown["--stores"] == "1 the default of this command"
    assert shown["--changelog"].startswith("on ")


@pytest.mark.parametrize(
    ("provider", "name", "said"),
    [
        ("", "hdfs", "providerClass is not declared, so Spark's default"),
        (ROCKSDB.replace("RocksDB", "HDFSBacked"), "hdfs", "is not in RocksDB but HDFS-backed"),
        ("com.example.OwnProvider", "com.example.OwnProvider", "what that store takes is not known"),
    ],
)
def test_a_job_whose_state_is_not_in_rocksdb_is_said(
    tmp_path: Path, provider: str, name: str, said: str
) -> None:
    settings = f'"{STATE}providerClass" = "{provider}"\n' if provider else ""
    found = succeed("plan-memory", *job_of(tmp_path, settings), "--json").document
    assert found["job"]["provider"] == name
    assert said in found["warnings"][0]
    if not provider:
        text = succeed("plan-memory", *job_of(tmp_path, settings)).out
        assert "HDFS-backed: the figures are of RocksDB in its place" in text


def test_the_progress_of_a_job_wins_over_its_settings(tmp_path: Path) -> None:
    of = job_of(tmp_path)
    job = load_jobs(tmp_path / "streaming_jobs.toml").job("flights")
    job.records().store.write("progress/main/0000000001.jsonl", RECORD.read_bytes())
    found = succeed("plan-memory", *of, "--json").document
    assert values(found)["--partitions"] == (2, "progress")
    assert values(found)["--keys"] == (found["state"]["rows"], "progress")
    assert found["job"]["batch"] is not None


def test_a_record_of_another_store_than_declared_is_named(tmp_path: Path) -> None:
    job_of(tmp_path, "")
    file = tmp_path / "streaming_jobs.toml"
    job = load_jobs(file).job("flights")
    record = ROOT / "tests/data/progress/4.3.0/aircraft-sessions/0000000001.jsonl"
    job.records().store.write("progress/main/0000000001.jsonl", record.read_bytes())
    found = succeed("plan-memory", "--job", "flights", "--jobs", file, "--json").document
    assert found["job"]["provider"] == "rocksdb"
    assert "shows RocksDB state, and the job declares HDFS-backed state" in found["warnings"][0]


def test_a_setting_that_cannot_be_read_is_named_with_its_job(tmp_path: Path) -> None:
    setting = f"{STATE}rocksdb.writeBufferSizeMB"
    answer = streambank("plan-memory", *job_of(tmp_path, f'"{setting}" = "32m"\n'), "--json")
    assert answer.code == 2 and answer.document["error"] == "bad-input"
    assert f"{setting} of job flights is '32m'" in answer.document["message"]
    assert "[jobs.flights.spark], or give --write-buffer" in answer.document["hint"]


def test_an_option_stands_for_a_setting_that_cannot_be_read(tmp_path: Path) -> None:
    of = job_of(tmp_path, '"spark.executor.cores" = "two"\n')
    assert succeed("plan-memory", *of, "--cores", 2, "--json").document["cores"] == 2


def test_a_local_job_has_one_executor_with_the_cores_of_its_master(tmp_path: Path) -> None:
    of = job_of(tmp_path, '"spark.driver.memory" = "2g"\n', 'master = "local[4]"\n')
    found = succeed("plan-memory", *of, "--json").document
    assert (found["executors"], found["cores"], found["executor_memory_bytes"]) == (1, 4, 2 << 30)
    assert any("starts no containers" in one for one in found["warnings"])


def test_executors_that_come_and_go_are_said(tmp_path: Path) -> None:
    settings = '"spark.dynamicAllocation.enabled" = true\n"spark.executor.instances" = 7\n'
    found = succeed("plan-memory", *job_of(tmp_path, settings), "--json").document
    assert found["executors"] == 1
    assert any("allocates executors dynamically" in one for one in found["warnings"])


def several(tmp_path: Path) -> tuple[str | Path, ...]:
    """A job of four queries: the records of two show state, one has no state, and one has no record."""
    of = job_of(tmp_path, more='master = "yarn"\nqueries = ["a", "b", "plain", "new"]\n')
    store = load_jobs(tmp_path / "streaming_jobs.toml").job("flights").records().store
    sessions = ROOT / "tests/data/progress/4.3.0/aircraft-sessions/0000000001.jsonl"
    for name, record in (("a", RECORD.read_bytes()), ("b", sessions.read_bytes())):
        store.write(f"progress/{name}/0000000001.jsonl", record)
    last = json.loads(RECORD.read_bytes().splitlines()[-1])
    last["progress"]["stateOperators"] = []
    store.write("progress/plain/0000000001.jsonl", json.dumps(last).encode() + b"\n")
    return of


def test_the_queries_of_a_job_share_its_executors(tmp_path: Path) -> None:
    of = several(tmp_path)
    found = succeed("plan-memory", *of, "--json").document
    alone = {
        name: succeed("plan-memory", "--job", f"flights/{name}", *of[2:], "--json").document
        for name in ("a", "b", "new")
    }
    assert [one["query"] for one in found["queries"]] == list(alone), "what keeps no state takes no memory"
    assert found["job"]["query"] is None and found["state"] is None
    for one in found["queries"]:
        mine = alone[one["query"]]
        assert (one["partitions"], one["stores"], one["state"]) == (
            mine["partitions"], mine["stores"], mine["state"],
        )  # fmt: skip
        parts = [each for each in found["parts"] if each["query"] == one["query"]]
        assert [each["executor_bytes"] for each in parts] == [
            each["executor_bytes"] for each in mine["parts"]
        ]
    for total in ("instances", "most_bytes"):
        assert found[total] == sum(one[total] for one in alone.values())
    assert found["expected_bytes"] is None, "of one it is not known"
    assert not any("share its executors" in one for one in found["warnings"])
    text = succeed("plan-memory", *of).out
    assert "flights, queries a and b and new together" in text and "write buffers, b" in text
    assert any("4 queries, which share its executors" in one for one in alone["b"]["warnings"])
    assert "flights, query b" in succeed("plan-memory", "--job", "flights/b", *of[2:]).out


def test_a_bound_on_memory_is_one_for_all_queries(tmp_path: Path) -> None:
    of = several(tmp_path)
    words = ("--bounded", "--max-memory", "300m", "--json")
    together = succeed("plan-memory", *of, *words).document
    alone = succeed("plan-memory", "--job", "flights/a", *of[2:], *words).document
    assert together["most_bytes"] == alone["most_bytes"] == 300 << 20
    assert together["instances"] > alone["instances"]


@pytest.mark.parametrize(
    "words",
    [("--keys", 10), ("--stores", 2), ("--update-share", 0.1), ("--ttl", "1h"), ("--state-size", "1g")],
)
def test_what_is_said_of_one_query_needs_its_name(tmp_path: Path, words: tuple[str | int, ...]) -> None:
    of = several(tmp_path)
    answer = streambank("plan-memory", *of, *words, "--json")
    assert answer.code == 2 and answer.document["error"] == "usage"
    assert words[0] in answer.document["message"] and "--job flights/a" in answer.document["hint"]


def test_python_workers_are_counted() -> None:
    words = ("plan-memory", "--partitions", 4, "--cores", 4, "--bounded", "--max-memory", "64m", "--json")
    without, found = succeed(*words).document, succeed(*words, "--python-worker", "200m").document
    assert "Python workers" in without["unknown"][0] and not found["unknown"]
    assert found["python_bytes"] == 800 << 20 and without["python_bytes"] == 0
    assert found["memory_overhead_bytes"] - without["memory_overhead_bytes"] == 832 << 20
    assert found["container_bytes"] == (1 << 30) + found["memory_overhead_bytes"]
    assert "800 MiB for 4 of them" in succeed(*words[:-1], "--python-worker", "200m").out


def test_memory_of_pyspark_is_beside_the_overhead(tmp_path: Path) -> None:
    of = job_of(tmp_path, '"spark.executor.pyspark.memory" = "300m"\n"spark.executor.cores" = 2\n')
    found = succeed("plan-memory", *of, "--json").document
    assert found["python_bytes"] == 0 and not found["unknown"]
    assert found["container_bytes"] == (1 << 30) + found["memory_overhead_bytes"] + (300 << 20)
    tight = succeed("plan-memory", *of, "--python-worker", "200m", "--json").document
    assert tight["python_bytes"] == 0
    assert any("to 150 MiB, and one takes 200 MiB. Set it to 400m" in one for one in tight["warnings"])


RATE = ("--events-per-second", 5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--state-size", "1g", "--ttl", "1h"), "--state-size is what --ttl would say"),
        (("--state-size", "1g", "--trigger", "1m"), "--state-size"),
        (("--state-size", "1g", "--keys", 10, "--row-bytes", 10), "--state-size is --keys times"),
        (("--max-memory", "1g"), "--max-memory has no effect"),
        (("--bounded", "--block-cache", "8m"), "--block-cache has no effect"),
        (("--min-deltas", 5), "--min-deltas has no effect"),
        (("--update-share", "0.1"), "--update-share is of the state's rows"),
        (("--key-bytes", 10), "--key-bytes is of the state's rows"),
        (("--keys", 10, "--trigger", "10s"), "--trigger says nothing"),
        (("--keys", 10, *RATE), "--events-per-second says nothing"),
        (("--keys", 10, "--window", "1m", "--watermark", "1m", "--ttl", "1h"), "--window and --ttl"),
        (("--jobs", "streaming_jobs.toml"), "--jobs needs --job"),
        (("--job", "flights"), "--job needs --jobs"),
    ],
)
def test_options_that_exclude_each_other_are_refused(words: tuple[str | int, ...], said: str) -> None:
    answer = streambank("plan-memory", *words, "--json")
    assert answer.code == 2 and answer.document["error"] == "usage"
    assert said in answer.document["message"] and answer.document["hint"]


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    ("option", "beside"),
    [
        ("--update-share", ("--keys", 10)),
        ("--events-per-second", ("--keys", 10, "--ttl", "1h")),
        ("--write-buffer-ratio", ("--bounded",)),
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    option: str, beside: tuple[str | int, ...], value: str
) -> None:
    answer = streambank("plan-memory", *beside, option, value, "--json")
    assert answer.code == 2 and answer.document["error"] == "bad-input"
    assert option in answer.document["message"] and answer.document["hint"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--bounded", "--high-priority-ratio", "nan"), "bad-input"),
        (("--keys", 10, "--events-per-second", "1e300", "--ttl", "9000d"), "bad-input"),
        (("--keys", 10**16), "bad-input"),
        (("--partitions", 10**400), "bad-input"),
        (("--executor-memory", "0g"), "bad-input"),
        (("--python-worker", "0m"), "bad-input"),
        (("--state-size", "0g"), "bad-input"),
        (("--write-buffer", "4B"), "bad-input"),
        (("--executor-memory", "-1g"), "bad-size"),
        (("--keys", 10, "--ttl", "0s"), "bad-input"),
        (("--keys", 10, "--ttl", "5m", "--trigger", "0s"), "bad-input"),
        (("--keys", 10, "--ttl", "-5m"), "bad-duration"),
        (("--keys", 10, "--window", "1h"), "bad-input"),
    ],
)
def test_sizes_and_durations_that_make_no_sense_are_refused(words: tuple[str | int, ...], code: str) -> None:
    answer = streambank("plan-memory", *words, "--json")
    assert answer.code == 2 and answer.document["error"] == code and answer.document["hint"]
