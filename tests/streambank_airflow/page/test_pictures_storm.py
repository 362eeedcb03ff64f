"""Pictures of the page for the docs: `make screenshots` keeps them there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.airflow_face.page_api import page_api
from tests.support.airflow_face.releases import needs_3_3
from tests.support.page import story as page_story
from tests.support.page.site import Site, jobs, site

__all__ = ["jobs", "page_api", "site"]

# Airflow answers with fields of its own that it has deprecated.
pytestmark = [
    pytest.mark.storm,
    needs_3_3,
    pytest.mark.filterwarnings("default:deprecated:DeprecationWarning"),
]

PICTURES = {
    "page-jobs": ("light", 1440, 800, "", "sessions"),
    "page-jobs-dark": ("dark", 1440, 800, "", "sessions"),
    "page-job": ("light", 1440, 1350, "orders", "Restored"),
    "page-job-down": ("light", 1440, 700, "flights", "The job is down"),
    "page-savepoint": ("light", 1440, 1000, f"orders/savepoints/{page_story.savepoint_id(3)}", "Manifest"),
    "page-narrow": ("dark", 400, 900, "flights", "The job is down"),
}
"""Name -> theme, width and height in pixels, view, and words that it shows once it is drawn."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where they are kept: in a folder that the environment names, or in a temporary one."""
    return Path(os.environ.get("PAGE_PICTURES") or tmp_path_factory.mktemp("pictures"))


def test_pictures(jobs: Site, places: Path) -> None:
    for name, (theme, width, height, view, words) in PICTURES.items():
        with jobs.visit("admin", width, height) as page:
            page.theme(theme)
            page.open(jobs.page(view) if view else jobs.page())
            page.shows(words)
            page.until("!document.querySelector('.sb-loading')")
            page.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            page.picture(places / f"{name}.png")

            assert not [one for one in page.errors if "streambank" in one], page.errors
            assert (places / f"{name}.png").stat().st_size > 10_000
