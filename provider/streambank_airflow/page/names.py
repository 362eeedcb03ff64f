"""How the page's asset of a job is called; apart from what makes assets, which triggers need, too."""

from __future__ import annotations

PAGES = "streambank://pages/"
"""How the URIs of page assets begin; the job's name follows."""


def page_name(job: str) -> str:
    """The name of the page asset of a job."""
    return f"streambank/{job}/page"
