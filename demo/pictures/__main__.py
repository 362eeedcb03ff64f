"""`python -m demo.pictures`: what `make screenshots` runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from demo import airflow_parts, keeper
from demo.__main__ import tell
from demo.job import WaitedTooLongError
from demo.pictures.chapters import JOBS_FILE, play
from demo.pictures.chromium import browser
from demo.pictures.views import PICTURES, take
from demo.places import ROOT, Places
from demo.rest import Airflow, RestError
from demo.screen import Screen
from demo.story import Story


def main(argv: Sequence[str] | None = None) -> int:
    """Play what the pictures show, and take them; only the latter where it is up already."""
    parser = argparse.ArgumentParser(
        prog="python -m demo.pictures",
        description="Plays the demo's story with two more jobs, and takes pictures of the page in Airflow.",
        epilog="With --stay the demo goes on, so that the next call takes pictures at once; "
        "`python -m demo down --home FOLDER` ends it.",
    )
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "images", help="default: docs/images")
    parser.add_argument(
        "--home", type=Path, default=ROOT / ".streambank" / "pictures", help="the demo's folder"
    )
    parser.add_argument("--port", type=int, help="where Airflow listens on loopback (default: a free port)")
    parser.add_argument("--stay", action="store_true", help="leave Airflow and the jobs running")
    names = [one.name for one in PICTURES]
    parser.add_argument("--only", nargs="+", choices=names, default=[], metavar="NAME", help=", ".join(names))
    options = parser.parse_args(argv)
    places, into = Places(options.home.absolute()), options.into.absolute()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Airflow would start twice as slowly
    try:
        browser()
        if keeper.is_running(places):
            take(_which_is_up(places), places.home, into, Screen(), options.only)
            return 0
    except (WaitedTooLongError, RestError) as error:
        print(error, file=sys.stderr)
        return 1

    def story(story: Story) -> None:
        play(story)
        take(story.airflow, places.home, into, story.screen, options.only)

    return tell(places, port=options.port, stay=options.stay, jobs_file=JOBS_FILE, play=story)


def _which_is_up(places: Places) -> Airflow:
    """The Airflow that an earlier call has left running in this folder."""
    state = keeper.read_state(places)
    assert state is not None, "it runs, so it has said where"
    passwords = json.loads((places.airflow / "simple_auth_manager_passwords.json.generated").read_text())
    return Airflow(state.url, airflow_parts.USER, passwords[airflow_parts.USER])


if __name__ == "__main__":
    sys.exit(main())
