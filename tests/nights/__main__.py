"""Play some nights, or all: `python -m tests.nights [NAME ...]`.

`--page` plays them, or the ten of the docs, with Streambank's page open, where the person acts by clicks.
`--docs` writes the tables of the docs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.nights.played import NIGHTS, play
from tests.nights.record import FOLDER, table, write
from tests.nights.site import open_site
from tests.nights.ten import PAGE, TEN, write_docs


def main() -> int:
    """Play them on one Airflow; 1 where one did not end as it must, whose folder then stays."""
    parser = argparse.ArgumentParser(prog="python -m tests.nights", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NIGHTS))
    parser.add_argument(
        "--page",
        action="store_true",
        help="with the page open in a browser, by clicks; without NAME the ten of the docs",
    )
    parser.add_argument(
        "--docs", action="store_true", help="write the tables of the newest records, play nothing"
    )
    options = parser.parse_args()
    if options.docs:
        missing = write_docs()
        print("\n".join(f"Play this first: {one}" for one in missing) or f"{PAGE} is written.")
        return 1 if missing else 0
    names = options.names or list(TEN if options.page else NIGHTS)
    if unknown := [name for name in names if name not in NIGHTS]:
        parser.error(f"there is no night {', '.join(unknown)}; there are {', '.join(NIGHTS)}")
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's job in the background ignores the first
        signal.signal(number, signal.default_int_handler)
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=FOLDER))
    nights = []
    with open_site(folder / "site") as site:
        for one in names:
            nights.append(play(site, one, with_page=options.page))
            print(table(nights[-1:]), flush=True)
            print(nights[-1].failure, flush=True)
            page = write(nights, name)
    print(f"{table(nights)}\n{page}")
    return 1 if any(night.failure for night in nights) else 0


if __name__ == "__main__":
    sys.exit(main())
