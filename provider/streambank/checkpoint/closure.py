"""Plan the closure of any retained batch of a checkpoint: exactly the files Spark needs to go on after it.

A pure function over one listing and the small files it names; what was read is kept for the next batch.
The listing of a live checkpoint has to be made in the order of `listing.LISTING_ORDER`, commits first: what
batch N needs was durable before `commits/N`, so it can only be missing because it was deleted, never because
it was not there yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

from streambank.checkpoint.files import CheckpointFiles, NamesOnly
from streambank.checkpoint.index import CheckpointIndex, OperatorFiles, store_folder
from streambank.checkpoint.logs import Commit, Offsets
from streambank.checkpoint.operators import GLOBAL_LIMIT, OperatorMetadata, require_schemas
from streambank.checkpoint.schema.store import is_keyless
from streambank.checkpoint.shape import (
    PARTITIONS,
    PROVIDER,
    URGENCY_LAST,
    URGENCY_LOG,
    Closure,
    ClosureFile,
    OperatorState,
    PartitionState,
    SparkFacts,
    StoreState,
)
from streambank.checkpoint.sources import file_log_offset, plan_schema_log, plan_sources
from streambank.checkpoint.state.rocksdb import ReadRange, ZipMetadata
from streambank.checkpoint.state.versions import Chain, ChainReaders, missing_state, plan_chain
from streambank.checkpoint.text import empty_file, half_written
from streambank.core.choices import CLOSURE_KINDS, ClosureKind
from streambank.core.errors import FormatError, NotFoundError, check_choice
from streambank.core.json_text import is_whole_number
from streambank.storage import FileInfo

__all__ = [
    "Closure",
    "ClosureFile",
    "ClosurePlanner",
    "OperatorState",
    "PartitionState",
    "SparkFacts",
    "StoreState",
    "plan_closure",
]

CODEC = "spark.sql.streaming.stateStore.compression.codec"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDERS = {_HDFS: "hdfs", _ROCKSDB: "rocksdb"}
"""By the whole name: other packages have classes with the same last part and other files."""


def plan_closure(
    listing: Mapping[str, FileInfo], read: ReadRange, batch: int | None = None, kind: ClosureKind = "safe"
) -> Closure:
    """The closure of a committed batch.

    Args:
        listing: Every file of the checkpoint, path -> file, listed in the order of `listing.LISTING_ORDER`.
        read: Reads a path from an offset on, some bytes or to the end; only small files, and heads and ends
            of larger ones, are asked for.

    Raises:
        InputError: `kind` is something else (code `bad-choice`).
        NotFoundError: `not-a-checkpoint`, `no-committed-batch`, `batch-not-committed`, `batch-not-retained`,
            `missing-log-entry` or `missing-state-file`; the message names the file.
        FormatError: `async-progress`, `no-commit-log`, `unknown-version`, `unknown-provider`,
            `unknown-source-log`, `unreadable-lineage`, `unknown-operators` or `half-written`.
        ConflictError: `checkpoint-moved`: a listed file went away while planning; list and plan again.
    """
    return ClosurePlanner(CheckpointIndex.build(listing), read).plan(batch, kind)


class ClosurePlanner:
    """Plans closures from one listing.

    Args:
        by_names: Open no snapshot and no changelog: quick, blind to SST files, and good only to tell which
            batches there are.
    """

    def __init__(self, index: CheckpointIndex, read: ReadRange, *, by_names: bool = False) -> None:
        self.index = index
        self.files = (NamesOnly if by_names else CheckpointFiles)(index.listing, read)

    def plan(self, batch: int | None = None, kind: ClosureKind = "safe") -> Closure:
        """The closure of a batch; see `plan_closure`."""
        check_choice(kind, "closure", CLOSURE_KINDS)
        chosen = choose_batch(self.index, batch)
        check_logs(self.index, chosen)
        refuse_asynchronous(self.index, self.files, chosen)
        if batch is None:
            refuse_lost_batches(self.index)
        return _Plan(self.index, self.files, chosen, kind).closure()


class _Plan:
    def __init__(self, index: CheckpointIndex, files: CheckpointFiles, batch: int, kind: ClosureKind) -> None:
        self._index, self._files, self._batch, self._kind = index, files, batch, kind
        self._chosen: dict[str, ClosureFile] = {}
        self._notes: list[str] = []
        self._keyless: set[int] = set()
        self._snapshots: set[int] = set()
        self._offsets: Offsets = files.offsets(index.offsets[batch])
        self._commit: Commit = files.commit(index.commits[batch])
        self._partitions = _whole_number(self._offsets.conf.get(PARTITIONS))

    def closure(self) -> Closure:
        query_id = self._files.query_id()
        if self._batch > 0:
            previous = self._index.offsets[self._batch - 1]
            self._files.offsets(previous)
            self._add(previous, "offsets", URGENCY_LOG)
        self._add(self._index.commits[self._batch], "commits", URGENCY_LOG)
        self._add(self._index.offsets[self._batch], "offsets", URGENCY_LOG)
        sources = plan_sources(
            self._offsets.sources, self._index.sources, self._files.read, self._files.chunks
        )
        for source in sources:
            for path in source.files:
                self._add(path, "source", URGENCY_LOG)
        newest = self._batch == max(self._index.commits)
        for log in self._index.schema_logs.values():
            for path in plan_schema_log(log, self._offsets.sources, self._files.schema_log, newest):
                self._add(path, "source", URGENCY_LAST)
        operators = tuple(self._operator(operator) for operator in self._operators())
        self._add("metadata", "metadata", URGENCY_LAST)
        provider_class = self._offsets.conf.get(PROVIDER)
        return Closure(
            batch=self._batch,
            kind=self._kind,
            files=tuple(sorted(self._chosen.values(), key=lambda file: (file.urgency, file.path))),
            query_id=query_id,
            watermark_ms=self._commit.next_watermark_ms or None,
            operators=operators,
            offset_conf=self._offsets.conf,
            sources=sources,
            spark=SparkFacts(
                offsets_version=self._offsets.version,
                commits_version=self._commit.version,
                checkpoint_format=1 if self._commit.unique_ids is None else 2,
                provider=self._provider() if operators else None,
                provider_class=provider_class,
                codec=self._offsets.conf.get(CODEC),
                shuffle_partitions=self._partitions,
                snapshot_version=max(self._snapshots, default=None),
            ),
            notes=tuple(self._notes),
            left_out=self._index.left_out(self._offsets.sources),
        )

    def _add(self, path: str, role: str, urgency: int, required: bool = True) -> int:
        """Take a file and Spark's checksum of it; gives its bytes, 0 where it was taken before."""
        if path in self._chosen:
            return 0
        info = self._index.listing[path]
        if info.size_bytes == 0:
            raise empty_file(path)
        self._chosen[path] = ClosureFile(path, info.size_bytes, role, urgency, required)
        checksum = self._index.listing.get(f"{path}.crc")
        if checksum is not None:
            self._chosen[checksum.path] = ClosureFile(
                checksum.path, checksum.size_bytes, "checksum", urgency, required=False
            )
        return info.size_bytes

    def _operators(self) -> list[int]:
        there = sorted(self._index.operators)
        ids = self._commit.unique_ids
        expected = sorted(ids) if ids is not None else list(range(len(there)))
        for operator in expected:
            if operator not in self._index.operators:
                raise missing_state(f"state/{operator} is missing: the state of operator {operator} is gone.")
        if there != expected:
            raise FormatError(
                f"state/ holds the operators {there}, and commits/{self._batch} names {expected}.",
                code="unknown-operators",
                hint="Another query wrote into this checkpoint, or the commit log is damaged.",
            )
        return expected

    def _provider(self) -> str:
        name = self._offsets.conf.get(PROVIDER, _HDFS)
        provider = _PROVIDERS.get(name)
        if provider is None:
            raise FormatError(
                f"The state store provider {name} is not known.",
                code="unknown-provider",
                hint="Savepoints know Apache Spark's HDFS-backed and RocksDB providers by their whole names: "
                "a class of the same name in another package writes other files.",
            )
        return provider

    def _operator(self, operator: int) -> OperatorState:
        files = self._index.operators[operator]
        metadata = self._operator_metadata(operator, files)
        names = [store.name for store in metadata.stores] if metadata else files.store_names()
        if not names:
            raise missing_state(f"state/{operator} holds no state of any partition.")
        partitions = self._partition_count(operator, files, metadata, names)
        stores = tuple(
            self._store(operator, files, name, place, partitions) for place, name in enumerate(names)
        )
        if metadata is None:
            return OperatorState(operator, None, stores)
        return OperatorState(operator, metadata.name, stores, metadata.variables, metadata.timers)

    def _operator_metadata(self, operator: int, files: OperatorFiles) -> OperatorMetadata | None:
        if files.metadata_v2:
            batch = max((batch for batch in files.metadata_v2 if batch <= self._batch), default=None)
            if batch is None:
                raise missing_state(f"state/{operator}/_metadata/v2 has no entry up to batch {self._batch}.")
            path = files.metadata_v2[batch]
            metadata = self._files.operator(path)
            require_schemas(metadata, path)
            self._add(path, "operator", URGENCY_LAST)
            for store in metadata.stores:
                for schema in store.schema_paths:
                    tail = schema.rpartition("/_stateSchema/")[2]
                    if tail not in files.schemas_v3:
                        raise missing_state(
                            f"state/{operator}/_stateSchema/{tail} is missing, and {path} needs it."
                        )
                    self._add(files.schemas_v3[tail], "schema", URGENCY_LAST)
            return metadata
        if files.schemas_v3:
            raise missing_state(
                f"state/{operator}/_metadata/v2 is missing, though it must name the schemas that are there."
            )
        if files.metadata_v1 is None:
            return None
        self._add(files.metadata_v1, "operator", URGENCY_LAST, required=False)
        return self._files.operator(files.metadata_v1)

    def _partition_count(
        self, operator: int, files: OperatorFiles, metadata: OperatorMetadata | None, names: list[str]
    ) -> int:
        ids = self._commit.unique_ids
        if ids is not None:
            return len(ids[operator])
        first = files.stores.get((0, names[0]))
        if first is not None and first.schema is not None:
            if is_keyless(self._files.read(first.schema)):
                if metadata is None or metadata.name != GLOBAL_LIMIT:
                    self._keyless.add(operator)
                return 1
        elif metadata is not None and metadata.name == GLOBAL_LIMIT:
            return 1
        declared = max((store.partitions for store in metadata.stores), default=0) if metadata else 0
        there = max((partition for partition, _ in files.stores), default=0) + 1
        return self._partitions or declared or there

    def _store(
        self, operator: int, files: OperatorFiles, name: str, place: int, partitions: int
    ) -> StoreState:
        rows: int | None = 0
        size_bytes = 0
        parts = []
        for partition in range(partitions):
            store = files.stores.get((partition, name))
            if store is None or not store.versions:
                raise self._missing_partition(store_folder(operator, partition, name), files, partitions)
            unique_id = self._unique_id(self._commit, operator, partition, place)
            chain: Chain = plan_chain(
                store,
                self._provider() == "rocksdb",
                (self._batch + 1, unique_id),
                self._kind == "safe",
                self._readers(operator, partition, place),
            )
            for file in chain.files:
                size_bytes += self._add(file.path, file.role, file.version)
            if store.schema is not None:
                # Of a store without a key, it tells that no other partition is missing.
                self._add(store.schema, "schema", URGENCY_LAST, required=operator in self._keyless)
            rows = None if rows is None or chain.rows is None else rows + chain.rows
            parts.append(self._part(partition, chain))
            self._notes.extend(chain.notes)
        return StoreState(name, partitions, rows, size_bytes, tuple(parts))

    def _part(self, partition: int, chain: Chain) -> PartitionState:
        sizes = [(file.role, self._chosen[file.path].size_bytes) for file in chain.newest]
        changes = [size_bytes for role, size_bytes in sizes if role == "state-changelog"]
        # Of RocksDB the rows are in the SST files; what is in the zip is as large for no rows as for many.
        base_role = "state-sst" if self._provider() == "rocksdb" else "state-snapshot"
        return PartitionState(
            partition=partition,
            rows=chain.rows,
            base_version=chain.base_version,
            base_rows=chain.base_rows,
            base_bytes=sum(size_bytes for role, size_bytes in sizes if role == base_role),
            change_files=len(changes),
            change_bytes=sum(changes),
            largest_change_bytes=max(changes, default=0),
        )

    def _missing_partition(self, folder: str, files: OperatorFiles, partitions: int) -> NotFoundError:
        message = f"{folder} holds no state: version {self._batch + 1} is missing of {partitions} partitions."
        if not files.schemas_v3 and not any(store.schema for store in files.stores.values()):
            message += " So is _metadata/schema of partition 0, which could show that it is the only one."
        return missing_state(message, "Spark would go on without this partition's rows. ")

    def _readers(self, operator: int, partition: int, place: int) -> ChainReaders:
        def committed_id(version: int) -> str | None:
            path = self._index.commits.get(version - 1)
            if path is None:
                return None
            return self._unique_id(self._files.commit(path), operator, partition, place)

        return ChainReaders(self._index.listing, self._zip_metadata, self._files.lineage, committed_id)

    def _zip_metadata(self, path: str) -> ZipMetadata:
        metadata = self._files.zip_metadata(path)
        if metadata.version is not None:
            self._snapshots.add(metadata.version)
        return metadata

    def _unique_id(self, commit: Commit, operator: int, partition: int, place: int) -> str | None:
        if commit.unique_ids is None:
            return None
        try:
            return commit.unique_ids[operator][partition][place]
        except (KeyError, IndexError) as error:
            raise half_written(
                f"commits/{self._batch} names no unique id for partition {partition} of operator {operator}.",
                "The commit log is damaged, or belongs to another query.",
            ) from error


def _whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and is_whole_number(text) and int(text) > 0 else None


_ASYNC_HINT = (
    "Asynchronous progress tracking and real-time mode write such logs, and savepoints do not support them: "
    "run the query without. If it never used them, files are missing, and a newer batch may be whole."
)


def choose_batch(index: CheckpointIndex, batch: int | None) -> int:
    """The batch asked for, or the newest committed one.

    Raises:
        NotFoundError: `not-a-checkpoint` or `no-committed-batch`.
        FormatError: `no-commit-log`.
    """
    refuse_none(index)
    require_commit_log(index)
    if not index.commits and batch is None:
        raise NotFoundError(
            "The query has not committed any batch yet: there is nothing in commits/.",
            code="no-committed-batch",
            hint="Wait for its first batch.",
        )
    return max(index.commits) if batch is None else batch


def refuse_none(index: CheckpointIndex) -> None:
    """Refuse a directory that is no checkpoint.

    Raises:
        NotFoundError: `not-a-checkpoint`.
    """
    if index.is_none:
        raise NotFoundError(
            "This is not a checkpoint: it has no metadata, offsets or commits.",
            code="not-a-checkpoint",
            hint="Give the directory that the query has as its checkpointLocation.",
        )


def require_commit_log(index: CheckpointIndex) -> None:
    """Refuse batches without any commit: Spark 2.1 kept none, and a newer one plans only one batch ahead.

    Raises:
        FormatError: `no-commit-log`.
    """
    newest = max(index.offsets, default=0)
    if newest > 0 and not index.commits:
        raise FormatError(
            f"commits/{newest} and all other commits are missing, though batch {newest} is planned: Spark "
            "2.1 wrote this checkpoint, before Spark had a commit log, or the commit log is lost.",
            code="no-commit-log",
            hint=f"Run the query on it once with Spark 3.5 to 4.3: Spark repeats batch {newest} and commits "
            "it, and that can be saved.",
        )


def check_logs(index: CheckpointIndex, batch: int) -> None:
    """Whether the logs of a batch are there, by name.

    Raises:
        NotFoundError: `batch-not-committed`, `batch-not-retained` or `missing-log-entry`.
    """
    newest, oldest = max(index.commits, default=None), min(index.commits, default=batch)
    if batch not in index.commits:
        if newest is None or batch > newest:
            planned = "is planned, but not committed" if batch in index.offsets else "is not committed"
            last = "and no other is" if newest is None else f"and the newest one that is is {newest}"
            raise NotFoundError(
                f"Batch {batch} {planned} (there is no commits/{batch}), {last}.",
                code="batch-not-committed",
                hint="Wait until it is committed, or take an older one.",
            )
        if batch < oldest:
            raise _not_retained(index, batch, f"commits/{batch}")
        raise _gap(index, batch, f"commits/{batch}")
    for wanted in (batch, batch - 1):
        if wanted < 0 or wanted in index.offsets:
            continue
        if not index.offsets or wanted < min(index.offsets):
            raise _not_retained(index, batch, f"offsets/{wanted}")
        raise _gap(index, batch, f"offsets/{wanted}")


def refuse_asynchronous(index: CheckpointIndex, files: CheckpointFiles, batch: int) -> None:
    """Refuse logs that are not written for every batch, which only a query without state may have.

    Both logs having the same gap is one sign, unless it lies beyond batches that were committed one by one:
    then entries were lost (`refuse_lost_batches`). A file source's log that is two or more entries ahead of
    the last planned batch is the other, unless that one and the one before it were committed: Spark otherwise
    plans a batch right after it has logged the files for it. Where entries were lost, or older logs were put
    back, the batches that are left are whole, and `logs_behind` says what is there.

    Raises:
        FormatError: `async-progress`.
    """
    commits = sorted(index.commits)
    committed = commits[-1]
    one_by_one = committed - 1 in index.commits
    if index.operators:
        return
    for first, second in zip(sorted(index.offsets), sorted(index.offsets)[1:], strict=False):
        if first >= committed and one_by_one:
            break
        after = bisect_right(commits, first)
        if second != first + 1 and not (after < len(commits) and commits[after] < second):
            raise FormatError(
                f"The logs have no batch between {first} and {second}: they are not written for every batch.",
                code="async-progress",
                hint=_ASYNC_HINT,
            )
    newest = max(index.offsets)
    try:
        further = list(_sources_further(index, files))
    except FormatError:
        if newest <= batch:
            raise
        return  # damage of a batch that is not asked for; the batches before it stay good
    if further and not one_by_one:
        raise FormatError(f"{further[0]}.", code="async-progress", hint=_ASYNC_HINT)


def _sources_further(index: CheckpointIndex, files: CheckpointFiles) -> Iterator[str]:
    newest = max(index.offsets)
    for source, offset in files.offsets(index.offsets[newest]).sources.items():
        last = file_log_offset(offset)
        entries = (part.batch for part in index.sources.get(source, ()) if part.batch is not None)
        logged = max(entries, default=-1)
        if last is not None and logged > last + 1:
            yield (
                f"sources/{source} goes on to entry {logged}, and the newest planned batch {newest} ends at "
                f"entry {last}"
            )


def logs_behind(index: CheckpointIndex, files: CheckpointFiles) -> str | None:
    """What shows that batches ran after the newest one that is planned, in words; None for nothing.

    Entries of `offsets` and `commits` were deleted then, or older ones were put back. State is written for a
    planned batch only, so its newest version is at most one above the number of that batch.

    Raises:
        FormatError: The newest entry of the offset log is damaged.
    """
    if not index.offsets:
        return None
    newest = max(index.offsets)
    found = list(_sources_further(index, files))
    versions = [
        (version, f"state/{operator}")
        for operator, state in index.operators.items()
        for (partition, _), store in state.stores.items()
        if partition == 0
        for paths in store.versions.values()
        for version, _ in paths
    ]
    version, folder = max(versions, default=(0, ""))
    if version > newest + 1:
        found.append(f"{folder} goes on to version {version}, which is of batch {version - 1}")
    return "; ".join(found) or None


def refuse_lost_batches(index: CheckpointIndex) -> None:
    """Refuse the newest committed batch where the offset log shows that later ones were committed, too.

    Raises:
        NotFoundError: `missing-log-entry`.
    """
    committed, planned = max(index.commits), max(index.offsets)
    for lost in range(committed + 1, planned):
        if lost not in index.offsets:
            raise NotFoundError(
                f"offsets/{lost} and commits/{lost} are missing, though batch {planned} is planned: the "
                f"query has gone on after batch {committed}, the newest that is committed.",
                code="missing-log-entry",
                hint=f"Batch {committed} is good and can be saved by its number; the sinks may have got more "
                "since. Spark does not go on from this checkpoint"
                + (
                    "."
                    if index.operators
                    else ", unless asynchronous progress tracking wrote it, which savepoints do not support."
                ),
            )


def _gap(index: CheckpointIndex, batch: int, path: str) -> FormatError | NotFoundError:
    number = int(path.rpartition("/")[2])
    if number not in index.commits and number not in index.offsets and not index.operators:
        return FormatError(
            f"{path} is missing among newer and older ones: the logs are not written for every batch.",
            code="async-progress",
            hint=_ASYNC_HINT,
        )
    return NotFoundError(
        f"{path} is missing, though batch {batch} needs it.",
        code="missing-log-entry",
        hint="The checkpoint is damaged. Take another batch.",
    )


def _not_retained(index: CheckpointIndex, batch: int, path: str) -> NotFoundError:
    oldest = min(index.commits)
    while oldest > 0 and oldest - 1 not in index.offsets and oldest < max(index.commits):
        oldest += 1
    return NotFoundError(
        f"Batch {batch} is not retained any more: {path} is gone, and batches {oldest} to "
        f"{max(index.commits)} are left.",
        code="batch-not-retained",
        hint="Take a retained batch, or raise spark.sql.streaming.minBatchesToRetain.",
    )
