"""How the page's asset of a job is called; apart from what makes assets, which triggers need, too."""

from __future__ import annotations

from typing import Any

from streambank.core.errors import InputError
from streambank.core.names import check_job_name

PAGES = "streambank://pages/"
"""How the URIs of page assets begin; the job's name follows."""


def page_name(job: str) -> str:
    """The name of the page asset of a job."""
    return f"streambank/{job}/page"


def job_of(task: Any) -> str | None:
    """The job whose page a task keeps; None for a task on a copy, on several jobs, or not rendered yet."""
    job = getattr(task, "job", None)
    if not isinstance(job, str) or getattr(task, "checkpoint", None):
        return None
    try:
        return check_job_name(job.partition("/")[0])
    except InputError:
        return None
