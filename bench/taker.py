"""Takes savepoints back to back, in a separate process as the command line would be.

    python -m bench.taker CHECKPOINT REPOSITORY (plain | gentle)

For each line on standard input, a number of seconds, it takes savepoints for so long without a pause, and
answers with one line of JSON: `seconds` of those that were new, `asked` (how often it was asked, those whose
batch had its savepoint already among them), and `replans`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from streambank.core.errors import NotFoundError
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank.work.pace import give_way


def main(checkpoint: str, location: str, manner: str) -> None:
    """Answer each line until there are no more."""
    if manner == "gentle":
        give_way()
    repository = Repository.open(open_store(location), create=True)
    source = open_store(checkpoint)
    for line in sys.stdin:
        until = time.monotonic() + float(line)
        answer: dict[str, Any] = {"seconds": [], "asked": 0, "replans": 0}
        while time.monotonic() < until:
            try:
                result = take(TakeRequest(source, repository, f"running-{manner}"))
            except NotFoundError:
                continue  # nothing is committed yet
            answer["asked"] += 1
            if not result.already_there:
                answer["seconds"].append(result.seconds)
                answer["replans"] += result.replans
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
