"""Snapshots of jobs as the page shows them: one that is well, and others with one trouble each.

Their shapes are those of docs/formats/page.md. Times are relative to now, since the page says how old a thing
is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from streambank.core.units import to_json_time

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
SAVEPOINTS = 36
EVIL = "<img src=x onerror=\"document.title='taken over'\"> <script>document.title='taken over'</script>"
"""What a page must show as the text that it is."""


def ago(seconds: float) -> str:
    """A moment in the past, as JSON has it."""
    return to_json_time(datetime.now(UTC) - timedelta(seconds=seconds))


def savepoint_id(number: int) -> str:
    """The id of a savepoint of the story; 0 is the newest."""
    batch = 48_210 - number * 410
    return f"b{batch:06d}-{(batch * 7_919 * 104_729) % 16**12:012x}"


def line(job: str, **more: Any) -> dict[str, Any]:
    """The line of a job that runs and is well, or of one with a trouble by other fields."""
    hours = range(48)
    newest = {
        "id": savepoint_id(0),
        "name": None,
        "query": "main",
        "batch": 48_210,
        "taken_at": ago(25 * MINUTE),
        "verified_at": ago(22 * MINUTE),
        "bytes": 482_113_004,
    }
    well: dict[str, Any] = {
        "format": 1,
        "job": job,
        "at": ago(20),
        "site": None,
        "desired": {"state": "running", "at": ago(2 * DAY), "by": f"ann by {job}.run", "why": ""},
        "state": "running",
        "state_why": "python 15291 exists",
        "since": ago(DAY),
        "down_since": None,
        "down_why": "",
        "watch": {
            "expected": True,
            "watched": True,
            "by": f"run of {job}.run",
            "seen_at": ago(12),
            "why": "",
        },
        "health": {"state": "healthy", "why": "query main made progress 4 s ago"},
        "operation": None,
        "queries": ["main"],
        "batch": 48_297,
        "batch_at": ago(4),
        "watermark": ago(62),
        "watermark_lag_s": 62.4,
        "lag": {"value": 1_840, "unit": "rows", "what": "rows that wait in the sources"},
        "state_rows": 1_840_112,
        "state_bytes": 501_600_000,
        "batch_s": 3.4,
        "commit_s": 0.84,
        "spark": {
            "step_s": 3600,
            "until": ago(0),
            "rows": [1_200_000 + 13_000 * hour for hour in hours],
            "bytes": [round(3.1e8 + 4e6 * hour + 6e6 * math.sin(hour / 2)) for hour in hours],
        },
        "level": "ok",
        "verdicts": [],
        "objectives": {"ok": 17},
        "savepoint": newest,
        "replicas": [
            {
                "name": "standby",
                "savepoint": savepoint_id(1),
                "taken_at": ago(85 * MINUTE),
                "behind": 1,
                "error": None,
            }
        ],
        "drill": {"at": ago(3 * DAY), "passed": True, "step": None, "rto_s": 51.7, "rpo_s": 1_500.0},
        "waits": [],
        "parts": {},
        "error": None,
    }
    return {**well, **more}


def jobs() -> dict[str, dict[str, Any]]:
    breach = {
        "objective": "partition_skew",
        "query": "main",
        "subject": "operator 0",
        "level": "breach",
        "why": "Partition 6 of operator 0 has 13.1 times the mean by bytes.",
        "value": 13.1,
        "limit": 10,
        "unit": "ratio",
        "since": ago(9 * HOUR),
    }
    nothing = dict.fromkeys(
        (
            "watch",
            "health",
            "batch",
            "batch_at",
            "watermark_lag_s",
            "lag",
            "state_rows",
            "state_bytes",
            "spark",
        )
    )
    return {
        "orders": line(
            "orders", level="breach", verdicts=[breach], objectives={"ok": 15, "breach": 1, "unknown": 1}
        ),
        "clicks": line("clicks"),
        "flights": line(
            "flights",
            state="failed",
            state_why="its driver ended with exit code 1",
            since=ago(21 * MINUTE),
            down_since=ago(21 * MINUTE),
            down_why="The driver ended with exit code 1: java.io.IOException: No space left on device.",
            health=None,
            watch={
                "expected": True,
                "watched": False,
                "by": "run of flights.run",
                "seen_at": ago(50 * MINUTE),
                "why": "flights.run is paused.",
            },
        ),
        "sessions": line(
            "sessions",
            state="failed",
            down_since=ago(70 * MINUTE),
            down_why="Restarts were given up after 5 failures.",
            health=None,
            waits=[
                {
                    "kind": "give-up",
                    "what": "5 drivers in a row made no batch: the checksum of 41.delta differs.",
                    "since": ago(65 * MINUTE),
                }
            ],
        ),
        "payments": line(
            "payments",
            state="stopped",
            desired={
                "state": "stopped",
                "at": ago(3 * DAY),
                "by": "ann by payments.stop",
                "why": "migration",
            },
            since=ago(3 * DAY),
            watch={"expected": False, "watched": False, "by": None, "seen_at": None, "why": ""},
            health=None,
        ),
        "lake": line(
            "lake",
            **nothing,
            state="unknown",
            state_why="its records cannot be read",
            savepoint=None,
            replicas=[],
            drill=None,
            level=None,
            objectives={},
            error={
                "part": "repository",
                "code": "storage-unreachable",
                "message": "s3://lake/savepoints does not answer: the connection timed out.",
                "hint": "Check the network and the service. The job itself may run on.",
            },
        ),
        "quiet": line("quiet", at=ago(25 * MINUTE)),
        "ledger": line(
            "ledger",
            queries=["hourly", "late"],
            batch=90,
            watch={
                "expected": True,
                "watched": False,
                "by": "run of ledger.run",
                "seen_at": ago(50 * MINUTE),
                "why": "Its watcher has given no sign since.",
            },
        ),
        "imports": line("imports", state_why=EVIL, down_since=ago(60), down_why=EVIL),
    }


def parts(queries: Sequence[str] = ("main",)) -> dict[str, dict[str, Any]]:
    """All parts of a job that is well, but has a past.

    Args:
        queries: The job's; the first is ahead, and has the savepoints.
    """
    return {
        name: {"at": ago(20), "error": None, **content}
        for name, content in {
            "status": _status(queries),
            "verdicts": {"verdicts": _verdicts()},
            "charts": _charts(),
            "savepoints": _savepoints(queries[0]),
            "events": {"events": _events()},
            "recoveries": _recoveries(),
            "repository": _repository(),
            "findings": {"findings": _findings()},
            "log": _log(),
        }.items()
    }


def broken_parts() -> dict[str, dict[str, Any]]:
    """The parts of a job whose storage does not answer."""
    error = {
        "code": "storage-unreachable",
        "message": "s3://lake/savepoints does not answer: the connection timed out.",
        "hint": "Check the network and the service.",
    }
    return {name: {"at": ago(20), "error": error} for name in parts()}


def _status(queries: Sequence[str]) -> dict[str, Any]:
    query = {
        "checkpoint": "s3://lake/checkpoints/orders.g0002",
        "generation": 2,
        "from_savepoint": savepoint_id(30),
        "batch": 48_297,
        "planned_batch": 48_298,
        "sink": "DeltaSink[s3://lake/tables/orders]",
        "watermark": ago(62),
        "progress_at": ago(4),
        "spark_version": "4.3.0",
    }
    return {
        "state": "running",
        "tracking": "http://spark-master:8080/app/?appId=app-1",
        "queries": {
            name: query if number == 0 else {**query, "batch": 90} for number, name in enumerate(queries)
        },
    }


def _verdicts() -> list[dict[str, Any]]:
    skew = {
        "job": "orders",
        "query": "main",
        "objective": "partition_skew",
        "level": "breach",
        "why": "Partition 6 of operator 0 has 13.1 times the mean by bytes.",
        "unit": "ratio",
        "value": 13.1,
        "limit": 10,
        "subject": "operator 0",
        "since": ago(9 * HOUR),
        "advice": "Salt the hot keys, or change the number of partitions.",
        "mute": None,
    }
    kept = [
        "state_rows",
        "batch_duration",
        "checkpoint_duration",
        "savepoint_age",
        "replica_age",
        "drill_age",
    ]
    return [
        skew,
        *({"objective": name, "query": "main", "subject": "", "level": "ok", "why": ""} for name in kept),
        {
            "objective": "hot_key",
            "query": "main",
            "subject": "",
            "level": "unknown",
            "why": "No keys are sampled.",
        },
    ]


def _chart(objective: str, unit: str, values: Sequence[float], **more: Any) -> dict[str, Any]:
    now = datetime.now(UTC).timestamp()
    times = [round(now - (len(values) - 1 - index) * 0.5 * HOUR) for index in range(len(values))]
    return {
        "query": "main",
        "objective": objective,
        "subject": "operator 0" if objective.startswith("state") else "",
        "name": objective,
        "meaning": objective.replace("_", " "),
        "unit": unit,
        "warn": None,
        "breach": None,
        "level": "ok",
        "t": times,
        "v": [round(value, 4) for value in values],
        "low": [round(value * 0.96, 4) for value in values],
        "high": [round(value * 1.05, 4) for value in values],
        "restarts": [round(now - 3.8 * DAY)],
        "forecast": None,
        **more,
    }


def _charts() -> dict[str, Any]:
    steps = range(300)
    now = datetime.now(UTC).timestamp()
    wave = [math.sin(step / 7.6) + 0.25 * math.sin(step / 1.3) for step in steps]
    ahead = {
        "begin": round(now),
        "end": round(now + 3 * DAY),
        "value": 5.02e8,
        "expected": 6.1e8,
        "low": 5.7e8,
        "high": 6.6e8,
        "grows": True,
    }
    sizes = [3.1e8 + 6.4e5 * step + 6e6 * wave[step] for step in steps]
    charts = [
        _chart("state_bytes", "bytes", sizes, warn=5.5e8, breach=7e8, forecast=ahead),
        _chart("state_rows", "rows", [1.2e6 + 2_133 * step + 2e4 * wave[step] for step in steps], breach=5e6),
        _chart(
            "batch_duration",
            "s",
            [3.2 + 0.5 * wave[step] + (step % 71 == 0) * 4 for step in steps],
            warn=6,
            breach=10,
        ),
        _chart("checkpoint_duration", "s", [0.8 + 0.1 * wave[step] for step in steps], warn=60),
        _chart("watermark_lag", "s", [62 + 9 * wave[step] for step in steps]),
        _chart("access_latency", "ms", [1.9 + 0.3 * wave[step] for step in steps], breach=100.0),
    ]
    store = {"query": "main", "operator": 0, "name": "stateStoreSave", "store": "default"}
    sizes = [61_000_000, *(4_000_000 - 31_000 * number for number in range(63))]
    partitions = [
        {**store, "partition": (6 + 7 * number) % 64, "bytes": size, "rows": size // 100}
        for number, size in enumerate(sizes)
    ]
    advice = "Partition 6 has 13.1 times the mean by bytes."
    stores = [
        {
            **store,
            "partitions": 64,
            "rows": 1_840_112,
            "bytes": sum(sizes),
            "skew": 13.1,
            "uneven": True,
            "advice": advice,
        }
    ]
    return {"charts": charts, "partitions": partitions, "stores": stores}


def _savepoints(query: str) -> dict[str, Any]:
    found = []
    place = "s3://standby/savepoints"
    why = "Its sink is foreachBatch."
    drilled = {"at": ago(5 * MINUTE), "passed": True, "not_run": why, "replica": place}
    for number in range(SAVEPOINTS):
        taken = 25 * MINUTE + number * 2 * HOUR
        damaged = number == 9
        checks = [{"at": ago(taken - 2 * MINUTE), "level": "quick", "passed": True, "problems": 0}]
        if number % 4 == 0 or damaged:
            checks.append(
                {
                    "at": ago(taken - 5 * MINUTE),
                    "level": "full",
                    "passed": not damaged,
                    "problems": 2 * damaged,
                }
            )
        found.append(
            {
                "id": savepoint_id(number),
                "name": "before-upgrade" if number == 5 else None,
                "query": query,
                "batch": 48_210 - number * 410,
                "taken_at": ago(taken),
                "why": "before the upgrade" if number == 5 else "",
                "note": "",
                "by": "ann by orders.savepoint" if number == 5 else "airflow by orders.savepoint",
                "kind": "taken",
                "bytes": 482_113_004 - number * 2_100_000,
                "new_bytes": 18_400_112 if number % 12 else 120_000_000,
                "files": 412 - number,
                "verified": [] if number == 1 else checks,
                "damage": {"problems": 2} if damaged else None,
                "pinned": number == 5,
                "held": False,
                "derived_from": None,
                "watermark": ago(taken + 65),
                "spark_version": "4.3.0",
                "kept": "one of the last 24",
                "expires": None if number < 24 else {"at": None, "why": "it is older than the last 24"},
                "drilled": None if number else drilled,
            }
        )
    manifest = {
        "checkpoint": "s3://lake/checkpoints/orders",
        "closure": "safe",
        "operators": ["operator 0, stateStoreSave: store default, 64 partitions, 1,840,112 rows, 478 MB"],
        "sources": ["source 0, kafka: orders up to offsets 88,121, 88,009 and 90,011"],
        "sinks": ["DeltaSink s3://lake/tables/orders (guarded)"],
        "files": 412,
        "bytes": 482_113_004,
        "seconds": 4.2,
    }
    return {"savepoints": found, "manifests": {one["id"]: manifest for one in found[:20]}, "more": 5}


def _event(at_s: float, kind: str, by: str | None = None, why: str = "", **facts: Any) -> dict[str, Any]:
    return {"at": ago(at_s), "kind": kind, "query": None, "facts": facts, "by": by, "why": why}


def _events() -> list[dict[str, Any]]:
    timed_out = "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment."
    return [
        _event(6 * DAY, "desired-running", "ann by orders.run"),
        _event(6 * DAY - 20, "driver-started", epoch=1),
        _event(3.8 * DAY + 60, "query-ended", failure=timed_out),
        _event(3.8 * DAY + 30, "driver-died", why=timed_out, exit_code=1),
        _event(
            3.8 * DAY,
            "restarted",
            "airflow by orders.run",
            "its driver ended with exit code 1",
            cause="died",
            paused_s=96.2,
        ),
        _event(
            2.1 * DAY,
            "stopped",
            "ann by orders.stop",
            "maintenance of the cluster",
            how="boundary",
            batch=36_000,
        ),
        _event(
            2 * DAY,
            "restored",
            "ann by orders.restore",
            savepoint=savepoint_id(30),
            batch=36_000,
            batches_back=12,
        ),
        _event(2 * DAY - 60, "driver-started", epoch=3),
        *(
            _event(
                25 * MINUTE + number * 2 * HOUR,
                "savepoint-taken",
                "airflow by orders.savepoint",
                savepoint=savepoint_id(number),
            )
            for number in range(8, -1, -1)
        ),
        _event(11 * MINUTE, "compacted", "ann by orders.compact", files=120, bytes=88_000_000),
    ]


def _recoveries() -> dict[str, Any]:
    steps = {
        "choose": 1.2,
        "restore": 9.8,
        "stage": 2.0,
        "launch": 21.5,
        "state": 6.6,
        "batches": 19.2,
        "compare": 14.4,
    }

    def run(at_s: float, **more: Any) -> Mapping[str, Any]:
        shown = [{"name": name, "seconds": seconds} for name, seconds in steps.items()]
        well = {"at": ago(at_s), "passed": True, "step": None, "savepoint": savepoint_id(2), "replica": None}
        return {
            **well,
            "rto_s": 51.7,
            "rpo_s": 1_800.0,
            "by": "airflow by orders.drill",
            "why": "",
            "steps": shown,
            **more,
        }

    skipped = [{"savepoint": savepoint_id(9), "why": "state/0/3/7.delta: The object is damaged."}]
    failed = {"passed": False, "step": "compare", "rto_s": None, "why": "the output of batch 7 lacks 3 rows"}
    return {
        "drills": [run(3 * DAY), run(5 * DAY, **failed)],
        "restores": [run(2 * DAY, by="ann by orders.restore", skipped=skipped)],
    }


def _repository() -> dict[str, Any]:
    gone = {
        "code": "no-answer",
        "message": "s3://backup/savepoints does not answer.",
        "hint": "Check the network.",
    }
    standby = {"savepoint": savepoint_id(1), "query": "main", "taken_at": ago(85 * MINUTE)}
    return {
        "location": "s3://lake/savepoints",
        "savepoints": 41,
        "bytes": 1_812_000_113,
        "objects": 1_290,
        "new_bytes_per_day": 441_600_000,
        "next_expiry": {"at": ago(-2 * DAY), "count": 12, "bytes": 220_000_000, "at_least": False},
        "damage": [
            {
                "savepoint": savepoint_id(9),
                "query": "main",
                "what": "Its last verification (full) found 2 problems.",
            }
        ],
        "replicas": [
            {
                "name": "standby",
                "location": "s3://standby/savepoints",
                "newest": standby,
                "behind": 1,
                "error": None,
            },
            {
                "name": "backup",
                "location": "s3://backup/savepoints",
                "newest": None,
                "behind": None,
                "error": gone,
            },
        ],
    }


def _findings() -> list[dict[str, Any]]:
    return [
        {
            "level": "warning",
            "code": "state-unbounded",
            "query": "main",
            "file": "",
            "text": "The state grows without end.",
            "cause": "stateStoreSave keeps each key: no watermark bounds it.",
            "cure": "Declare a watermark, or a time to live.",
            "since": None,
        }
    ]


def _log() -> dict[str, Any]:
    cause = "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment."
    lines = [
        "Traceback (most recent call last):",
        '  File "/opt/jobs/orders.py", line 41, in <module>',
        "    query.awaitTermination()",
        "pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] the query terminated",
        f"Caused by: {cause}",
        "    at org.apache.kafka.clients.admin.KafkaAdminClient.call(KafkaAdminClient.java:1234)",
        EVIL,
    ]
    return {
        "driver": "launch-1f9aeb06868047399e6e42759fb23388",
        "host": "etl-1",
        "cause": cause,
        "why": "",
        "lines": lines,
    }
