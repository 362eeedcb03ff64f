"""A real browser: what a page becomes in it, without any network."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from demo.pictures.chromium import browser


def shown(page: Path, profile: Path) -> tuple[str, str]:
    """What the page has become once its script has run, and what the browser said of it."""
    done = subprocess.run(
        [
            browser(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            "--virtual-time-budget=20000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout, done.stderr


def plots(dom: str) -> tuple[int, int]:
    """How many plots a page has, and how many of them are drawn."""
    places = re.findall(r'<div[^>]* id="chart-\d+"[^>]*>', dom)
    return len(places), sum("js-plotly-plot" in place for place in places)
