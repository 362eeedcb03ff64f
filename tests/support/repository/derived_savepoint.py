"""A savepoint made of another one without Spark: the same batch, with a byte of its state changed."""

from __future__ import annotations

from streambank.checkpoint.rewritten import DERIVED_FROM, with_conf
from streambank.control.target_owner import restoring
from streambank.repository.holds import Holds
from streambank.repository.repository import Repository
from streambank.savepoint.materialize import materialize
from streambank.savepoint.take import TakeRequest, take
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.jobs.simulated_job import BY


def derive(repository: Repository, job: str, savepoint: str) -> str:
    """Make the other one; its id."""
    place = MemoryStore()
    manifest = repository.load(job, savepoint)
    with restoring(exclusive=True) as owner:
        materialize(repository, manifest, place, owner=owner)
    change(place, manifest.batch, savepoint)
    with Holds(repository, "restore", BY).held(job, savepoint):
        return take(TakeRequest(place, repository, job, closure="minimal", derived_from=manifest)).savepoint


def change(place: Store, batch: int, of: str) -> None:
    """Name where the checkpoint comes from, and change its newest state."""
    log = f"offsets/{batch}"
    place.write(log, with_conf(place.read(log), log, {DERIVED_FROM: f"{of} test"}))
    newest = next(name for name in sorted(place.names("state/0/0")) if name.startswith(f"{batch + 1}."))
    path = f"state/0/0/{newest}"
    content = place.read(path)
    place.write(path, bytes([content[0] ^ 1]) + content[1:])
