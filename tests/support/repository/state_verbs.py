"""Each verb of `state` with arguments that it answers, as docs/reference/json.md shows it."""

from __future__ import annotations

from pathlib import Path

from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack


def state_verbs(folder: Path) -> dict[str, list[str | Path]]:
    """What is asked, by the heading of its example; of savepoints that are taken into the folder."""
    checkpoint = open_store(unpack("4.3.0/rocksdb-window", folder) / "checkpoint")
    repository = Repository.open(open_store(folder / "savepoints"), create=True)
    old, new = (
        take(TakeRequest(checkpoint, repository, "orders", batch=batch)).savepoint for batch in (3, 7)
    )
    other = unpack("4.3.0/hdfs-dedup", folder / "plain") / "checkpoint"
    plain = take(TakeRequest(open_store(other), repository, "plain")).savepoint
    sql = "SELECT key.k AS k, value.sum AS total FROM state"
    table = folder / "table.json"
    table.write_text(
        '{"window": {"start": "2024-01-01T05:00:00Z", "end": "2024-01-01T05:20:00Z"}, "k": "k9", "sum": 5}\n'
    )
    arguments: dict[str, list[str | Path]] = {
        "rescale": [new, "--partitions", "3"],
        "state schema": [new],
        # What comes first is what is compared with.
        "state schema --against": [unpack("4.3.0/hdfs-join", folder / "other") / "checkpoint", new],
        "state read": [new, "--limit", "2"],
        "state query": [new, sql, "--limit", "2"],
        "state export": [new, folder / "export"],
        "state digest": [new],
        "state diff": [old, new, "--samples", "2"],
        "state validate": [new, "--rule", "value.sum < 0", "--samples", "2"],
        "state validate --repair": ["value.sum = 0", new, "--rule", "value.sum < 9", "--samples", "2"],
        "state migrate": [plain],
        "state bootstrap": [new, "--from", table, "--existing", "keep"],
        "state transform": [
            new,
            "--set",
            "value.sum = 2 * value.sum",
            "--samples",
            "2",
            "--delete-where",
            "key.k = 'k1'",
        ],
        "state compact": [new, "--where", "key.k = 'k1'"],
        "state erase": [new, "--key", '{"k": "k2"}'],
    }
    place = ("-r", folder / "savepoints", "--json")
    return {verb: [*verb.split(), *given, *place] for verb, given in arguments.items()}
