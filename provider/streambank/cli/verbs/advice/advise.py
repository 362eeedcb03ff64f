"""The verb `advise`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from streambank.advice.request import AdviseRequest
from streambank.cli.options import OptionalJobsFile
from streambank.cli.output import console
from streambank.cli.verbs.advice.options import JobNamed, job_asked, show_values
from streambank.core.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streambank.advice.values import Value

EXAMPLES = """Examples:

  streambank advise --keys 5000000 --update-share 0.1 --latency 5s

  streambank advise --state-size 10g --row-bytes 200 --executors 4 --cores 4 --python-worker 200m

  streambank advise --job orders --jobs dags/streaming_jobs.toml --latency 2s
"""


def advise(
    context: typer.Context,
    request: AdviseRequest,
    job: JobNamed = None,
    jobs: OptionalJobsFile = None,
) -> None:
    """Choose a state store and its settings, each sentence with the measurement behind it."""
    from streambank.advice.measured import measurements
    from streambank.advice.resolve import SHARE, cluster_of, rows_of
    from streambank.advice.stores import StoreRequest
    from streambank.advice.stores import advise as choose
    from streambank.advice.values import Values

    of = job_asked(context, job, jobs)
    now = None if of is None else of.now
    values = Values(None if of is None else of.declared)
    rows, each = rows_of(request, values, now)
    if rows is None:
        if of is not None:
            raise NotFoundError(
                f"Job {of.job.name} has no progress record that shows state, so its state is not known.",
                code="no-history",
                hint="Start the job under Streambank, or give --keys and --row-bytes.",
            )
        raise InputError(
            "How large the state is is not known.",
            code="usage",
            hint="Give --keys or --state-size, or --job NAME; `streambank plan-memory` estimates it.",
        )
    share = values.take(SHARE, request.update_share, None if now is None else now.update_share)
    cluster = cluster_of(request, values, now, of_cores=True)
    asked = StoreRequest(rows, each, share, request.latency_s, cluster)
    found = measurements()
    advice = choose(asked, found)
    document = {
        "asked": {
            "keys": rows,
            "row_bytes": each,
            "state_bytes": asked.state_bytes,
            "update_share": share,
            "latency_s": asked.latency_s,
            "executors": cluster.executors,
            "cores": cluster.cores,
            "partitions": cluster.partitions,
            "executor_memory_bytes": cluster.heap_bytes,
        },
        "job": None if of is None else of.to_dict(),
        "values": [one.to_dict() for one in values.found],
        "measured_with": {"spark": found.spark, "machine": found.machine, "made": found.made,
                          "command": found.command, "rounds": found.rounds},
        **advice.to_dict(),
    }  # fmt: skip
    console.answer(document, lambda: _show(document, job, values.found))


def _show(found: dict[str, Any], job: str | None, values: Sequence[Value]) -> None:
    from streambank.advice.measured import TITLES

    asked = found["asked"]
    if found["job"] is not None and "batch" in found["job"]:
        console.line(f"State of {job} at batch {found['job']['batch']}: {found['job']['provider']}.")
    console.fields(
        [
            ("store", TITLES[found["store"]]),
            (
                "state",
                f"{asked['keys']:,} rows of {asked['row_bytes']:,} B: {console.size(asked['state_bytes'])}",
            ),
            ("changed", f"{asked['update_share']:.3g} of the rows in a batch"),
        ]
    )
    console.line()
    show_values(values)
    console.line()
    for reason in found["reasons"]:
        console.line(reason["text"])
        console.line(f"  measured: {reason['measurement']}")
    console.line()
    columns = (
        "store",
        "batch ms",
        "of a processor",
        "commit ms",
        "restart s",
        "heap",
        "outside of it",
        "a batch writes",
        "fits",
    )
    console.table(
        columns,
        [
            (TITLES[one["store"]],
             *(f"{one[name]:,}" for name in ("batch_ms", "cpu_ms", "commit_ms")),
             f"{one['restart_s']:.1f}",
             *(console.size(one[name]) for name in ("heap_bytes", "native_bytes", "written_bytes")),
             "yes" if one["fits"] else "no")
            for one in found["expected"]
        ],
        right=columns[1:-1],
    )  # fmt: skip
    console.line()
    console.line("For spark-submit or spark-defaults.conf:")
    for one in found["settings"]:
        console.line(f"{one['name']} {one['value']}")
    console.line()
    name = (job or "NAME").partition("/")[0]
    console.line(f"For streaming_jobs.toml, in [jobs.{name}.spark]:")
    for one in found["settings"]:
        console.line(f'"{one["name"]}" = "{one["value"]}"')
    console.line()
    for one in found["settings"]:
        console.line(f"{one['name']}: {one['text']}")
        console.line(f"  by: {one['measurement']}")
    warnings = found["memory"]["warnings"] if found["memory"] is not None else []
    for kind, sentences in (("warning", warnings), ("not known", found["unknown"])):
        for sentence in sentences:
            console.line()
            console.line(f"{kind}: {sentence}")


VERBS = {"advise": (advise, EXAMPLES)}
