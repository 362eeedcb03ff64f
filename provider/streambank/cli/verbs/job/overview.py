"""`job overview`: a job as its page shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import JobName, JobsFile, job_named
from streambank.cli.output import console
from streambank.core.options import Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streambank.overview.snapshot import Snapshot

EXAMPLES = """Examples:

  streambank job overview orders

  streambank job overview orders --part savepoints --part log --json

  streambank job overview orders --html orders.html
"""


def overview(
    name: JobName,
    jobs: JobsFile,
    part: Annotated[
        tuple[str, ...],
        Option(
            "Show only this part: status, repository, savepoints, verdicts, charts, "
            "events, recoveries, log, findings.",
            metavar="NAME",
        ),
    ] = (),
    html: Annotated[
        str | None,
        Option("Also write the page as one file, for a browser without Airflow.", metavar="FILE"),
    ] = None,
) -> None:
    """Show a job as its page in Airflow does: one line, and how large and how old each part is.

    Parts that cannot be read say why, and the others are shown. It changes nothing. Exit code 1 if a part
    cannot be read.
    """
    from streambank.overview.snapshot import PARTS, snapshot

    shown = part or (PARTS if html is not None else None)
    found = snapshot(job_named(name, jobs), parts=shown)
    if html is not None:
        from streambank.overview.html import write_page

        write_page(html, found.line["job"], found.line["at"], found.line, found.parts)
        console.note(f"written: {html}")
    console.answer(found.to_dict(), lambda: _show(found, whole=bool(part)))
    if found.line["error"] is not None:
        raise typer.Exit(1)


def _show(found: Snapshot, *, whole: bool) -> None:
    line = found.line
    console.line(f"job {line['job']}: {line['state']} ({line['state_why']})")
    console.fields([(name.replace("_", " "), value) for name, value in _fields(line)])
    for one in line["verdicts"]:
        subject = f" of {one['subject']}" if one["subject"] else ""
        console.line(f"{one['level']}: {one['objective']}{subject}: {one['why']}")
    for one in line["waits"]:
        console.line(f"waits ({one['kind']}): {one['what']}")
    console.line()
    columns, digests = ("part", "bytes", "digest", "error"), line["parts"]
    rows = [(name, _size(one), digests[name]["digest"], _error(one)) for name, one in found.parts.items()]
    console.table(columns, rows, right=("bytes",), drop=("digest",))
    for name, one in found.parts.items() if whole else ():
        console.line()
        console.line(f"{name}:")
        for text in json.dumps(one, indent=1, ensure_ascii=False).splitlines():
            console.line(text)


def _fields(line: Mapping[str, Any]) -> list[tuple[str, object]]:
    """What of the line a person reads on one line each."""
    desired, watch, savepoint, drill = (line[name] for name in ("desired", "watch", "savepoint", "drill"))
    replicas = [f"{one['name']} {one['error'] or one['savepoint'] or 'empty'}" for one in line["replicas"]]
    return [
        ("desired", desired and f"{desired['state']}, set by {desired['by']} at {desired['at']}"),
        ("since", line["since"]),
        ("down", line["down_since"] and f"since {line['down_since']}: {line['down_why']}"),
        ("watched", watch and (f"no: {watch['why']}" if watch["why"] else watch["by"])),
        ("health", line["health"] and f"{line['health']['state']}: {line['health']['why']}"),
        ("operation", line["operation"] and line["operation"]["name"]),
        ("batch", line["batch"]),
        ("batch at", line["batch_at"]),
        ("watermark", line["watermark"]),
        ("state rows", line["state_rows"]),
        ("state", None if line["state_bytes"] is None else console.size(line["state_bytes"])),
        ("level", line["level"]),
        ("savepoint", savepoint and f"{savepoint['id']}, verified at {savepoint['verified_at']}"),
        ("replicas", ", ".join(replicas)),
        ("drill", drill and f"{_drilled(drill)} at {drill['at']}"),
        ("error", line["error"] and f"{line['error']['part']}: {line['error']['message']}"),
    ]


def _drilled(drill: Mapping[str, Any]) -> str:
    """How the newest drill ended."""
    if not drill["passed"]:
        return "failed"
    return "savepoint proved, application not run," if drill["not_run"] else "passed"


def _size(part: Mapping[str, Any]) -> str:
    from streambank.overview.plain import size_of

    return f"{size_of(part):,}"


def _error(part: Mapping[str, Any]) -> str | None:
    return str(part["error"]["message"]) if part["error"] else None


VERBS = {"overview": (overview, EXAMPLES)}
