"""The schema of a query's state, from a savepoint or a checkpoint; only small files are read."""

from __future__ import annotations

from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.schema.query import QuerySchema, read_query_schema
from streambank.repository.repository import Repository
from streambank.storage import Store


def schema_of_savepoint(repository: Repository, job: str, savepoint: str) -> tuple[int, QuerySchema]:
    """The batch of a savepoint, and the schema of its state.

    Raises:
        NotFoundError: There is no such savepoint.
        IntegrityError: A file of it is damaged.
        FormatError: A file is not understood.
    """
    manifest = repository.load(job, savepoint)
    digests = {entry.path: entry.digest for entry in manifest.files}
    schema = read_query_schema(
        digests, lambda path: repository.objects.read(digests[path]), manifest.offset_conf
    )
    return manifest.batch, schema


def schema_of_checkpoint(store: Store, batch: int | None = None) -> tuple[int, QuerySchema]:
    """A committed batch (None: the newest) of a checkpoint, whose query may run, and its state's schema."""
    closure = CheckpointReader(store).closure(batch, "minimal")
    return closure.batch, read_query_schema(closure.paths, store.read, closure.offset_conf)
