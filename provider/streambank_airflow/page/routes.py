"""The page's routes: what is kept of the jobs that a user may see, as JSON, and the files of the page itself.

They read Airflow's database and nothing else, and change nothing: an action is a DAG run, which the browser
triggers through Airflow's own API as the user. No route but that of the static files answers an anonymous.
FastAPI reads the annotations of this module, so what they name is imported here and not below
`TYPE_CHECKING`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, HTTPException, Request, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streambank.core.errors import InputError
from streambank.core.json_text import loads
from streambank.core.names import check_job_name
from streambank.core.units import to_json_time, utc_now
from streambank_airflow.dag_names import owners
from streambank_airflow.page.files import static_files
from streambank_airflow.page.own_dags import own_dags, seen_jobs
from streambank_airflow.page.rights import JobDag, Rights, dags_of
from streambank_airflow.page.rows import rows
from streambank_airflow.page.store import FORMAT, DamagedPartError, as_json, read_part

LOG = "log"
"""The part that is as secret as the logs of tasks are."""
DAMAGED = "page-part-damaged"
_PART = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_NO_JOB = "There is no such job, or you may not see it."
_DAMAGED_HINT = "The next task or watcher of the job keeps it again."


def page_app() -> FastAPI:
    """The application that Airflow's API server mounts."""
    app = FastAPI(title="Streambank", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guarded)
    app.get("/jobs")(list_jobs)
    app.get("/jobs/{job}")(show_job)
    app.get("/jobs/{job}/{part}")(show_part)
    app.get("/dags/{dag_id}")(show_dag)
    app.get("/static/{name}")(serve_file)
    return app


class Guarded:
    """What every answer says, of errors too: that it is what its type says, and is not to be stored."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def say(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, say)


def list_jobs(user: GetUserDep, session: SessionDep) -> Response:
    """The lines of all jobs that the user may see."""
    rights = Rights(user, session)
    lines, own = rows().lines(session), own_dags(session)
    seen = seen_jobs(rights, lines, own)
    approvals = _approvals_by_job(rights, seen, own)
    entries = ",".join(_entry(dag, lines[job], approvals[job]) for job, dag in seen.items())
    facts = {"format": FORMAT, "now": _now(), "import_errors": rights.may_read_import_errors()}
    return _json(f'{as_json(facts)[:-1]},"jobs":[{entries}]}}')


def show_job(job: str, user: GetUserDep, session: SessionDep) -> Response:
    """The line of a job, its DAGs, what the user may do with them, and what waits for a person."""
    rights = Rights(user, session)
    line, _, own = _seen(rights, job)
    built = dags_of(session, job)
    readable = rights.readable([dag.dag_id for dag in (*built, *own)])
    facts = {
        "format": FORMAT,
        "now": _now(),
        "job": job,
        "import_errors": rights.may_read_import_errors(),
        "dags": [_shown(rights, dag) for dag in built if dag.dag_id in readable],
        "own": [_shown(rights, dag) for dag in own if dag.dag_id in readable],
        "approvals": [asdict(one) for one in rights.approvals(readable)],
    }
    return _json(f'{as_json(facts)[:-1]},"line":{_line(job, line)}}}')


def show_dag(dag_id: str, user: GetUserDep, session: SessionDep) -> Response:
    """The jobs that a DAG works on, of those that the user may see."""
    rights, own = Rights(user, session), own_dags(session)
    known = {job for job, dags in own.items() if any(dag.dag_id == dag_id for dag in dags)}
    for job in owners(dag_id):
        if any(dag.dag_id == dag_id for dag in dags_of(session, job)):
            known.add(job)
    seen = seen_jobs(rights, known, own) if rights.readable([dag_id]) else {}
    return _json(as_json({"format": FORMAT, "now": _now(), "dag_id": dag_id, "jobs": list(seen)}))


def show_part(job: str, part: str, user: GetUserDep, session: SessionDep) -> Response:
    """A part of a job, as it was kept."""
    rights = Rights(user, session)
    _, dag, _ = _seen(rights, job)
    if part == LOG and not rights.may_read_logs(dag.dag_id):
        raise HTTPException(HTTPStatus.FORBIDDEN, "You may not read the logs of this job's tasks.")
    text = None
    if _PART.fullmatch(part):
        try:
            text = read_part(part, lambda keys: rows().read(session, job, keys))
        except DamagedPartError as error:
            text = as_json({"at": None, "error": _damaged(f"What is kept for the page is damaged: {error}.")})
    if text is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "Nothing of that name has been kept for this job.")
    return _json(text)


def serve_file(name: str, request: Request) -> Response:
    """A file of the page; nothing in it is of any job."""
    found = static_files().get(name)
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such file.")
    headers = {"ETag": found.etag, "Cache-Control": "no-cache"}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("If-None-Match", "").split(",")]
    if found.etag in known:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(found.content, headers=headers, media_type=found.type)


def _seen(rights: Rights, job: str) -> tuple[str | None, JobDag, Sequence[JobDag]]:
    """The line of a job, the DAG by which the user sees it, and those that people have written for it.

    Raises:
        HTTPException: There is no such job, or the user may not see it: which of the two is not said.
    """
    missing = HTTPException(HTTPStatus.NOT_FOUND, _NO_JOB)
    try:
        check_job_name(job)  # no database is asked for what no job may be called
    except InputError:
        raise missing from None
    lines = rows().lines(rights.session, job)
    own = own_dags(rights.session, job)
    dag = seen_jobs(rights, lines, own).get(job)
    if dag is None:
        raise missing
    return lines[job], dag, own.get(job, [])


def _shown(rights: Rights, dag: JobDag) -> dict[str, Any]:
    """A DAG of a job that the user may read, and what they may do with it."""
    may_trigger = rights.may_trigger(dag.dag_id)
    return {
        "dag_id": dag.dag_id,
        **({"verbs": dag.verbs} if not dag.verb else {"verb": dag.verb}),
        "name": dag.name,
        "paused": dag.paused,
        "broken": dag.broken,
        "mistake": dag.mistake,
        "bundle": dag.bundle,
        "file": dag.file,
        "may": {
            "read": True,
            "trigger": may_trigger,
            # Only of a run that the user may begin does the page say whether its question appears.
            "questions": may_trigger and rights.may_read_questions(dag.dag_id),
        },
    }


def _approvals_by_job(
    rights: Rights, jobs: Collection[str], own: Mapping[str, Sequence[JobDag]]
) -> dict[str, list[dict[str, Any]]]:
    """What waits for a person, by job; of jobs that the user sees."""
    of_dag: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        for dag in own.get(job, ()):
            of_dag[dag.dag_id].append(job)

    def jobs_of(dag_id: str) -> list[str]:
        return [job for job in owners(dag_id) if job in jobs][:1] or of_dag.get(dag_id, [])

    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in rights.approvals(of=lambda dag_id: bool(jobs_of(dag_id))):
        for job in jobs_of(one.dag_id):
            found[job].append(asdict(one))
    return found


def _entry(dag: JobDag, line: str | None, approvals: list[dict[str, Any]]) -> str:
    facts = {
        "job": dag.job,
        "dag": dag.dag_id,
        "built": bool(dag.verb),
        "paused": dag.paused,
        "broken": dag.broken,
        "mistake": dag.mistake,
        "approvals": approvals,
    }
    return f'{as_json(facts)[:-1]},"line":{_line(dag.job, line)}}}'


def _line(job: str, text: str | None) -> str:
    """A line as it was kept, as JSON; an error where it is damaged."""
    if text is None:
        return "null"
    try:
        line = loads(text)
        if isinstance(line, dict) and line.get("job") == job:
            # Browsers read no NaN: it costs less to look for it than to write every line again.
            return as_json(line) if "NaN" in text else text
    except ValueError:
        pass
    return as_json(
        {"format": FORMAT, "job": job, "error": _damaged("The line that is kept for the page is damaged.")}
    )


def _damaged(message: str) -> dict[str, str]:
    return {"code": DAMAGED, "message": message, "hint": _DAMAGED_HINT}


def _now() -> str:
    return to_json_time(utc_now())


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")
