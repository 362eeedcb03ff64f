"""Verifying a savepoint: is every byte of it what was saved?

* quick: the manifest is whole, each object is there, and its file has the size it was written with.
* full: each byte is hashed, the tables of the packs are checked, and Spark's own checksums agree.

What is wrong comes back as findings, each with what it is about, the cause, the effect and a way out. The
result is recorded beside the manifest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from streambank.errors import FormatError, InputError, IntegrityError
from streambank.finding import Finding
from streambank.savepoint import spark_checksums
from streambank.savepoint.check_work import Checking, CheckTask, Flaws, check_tasks
from streambank.savepoint.entry import FileEntry
from streambank.savepoint.executing import Executor, Threads
from streambank.savepoint.manifest import Manifest
from streambank.savepoint.progress import Meter, Progress
from streambank.savepoint.repository import Repository
from streambank.savepoint.wholeness import flaws
from streambank.times import to_json_time

Level = Literal["quick", "full"]

_NO_RESTORE = "The savepoint cannot be restored."
_USE_ANOTHER = "Restore another savepoint (`latest-good` finds one); this one may be whole in a replica."


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a verification found.

    Attributes:
        savepoint: Its id.
        job: `job` or `job/query`.
        batch: Its batch; None where the manifest cannot be read.
        level: How deep it looked.
        ok: Whether nothing was found.
        restorable: Whether there is no finding of severity `error`, so that the savepoint can be restored.
        findings: What is wrong.
        files: How many files of the savepoint were looked at.
        bytes: How many bytes were hashed; for `quick`, whose sizes were compared.
        seconds: How long it took.
        at: When it ended.
    """

    savepoint: str
    job: str
    batch: int | None
    level: Level
    ok: bool
    restorable: bool
    findings: tuple[Finding, ...]
    files: int
    bytes: int
    seconds: float
    at: datetime

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "savepoint": self.savepoint,
            "job": self.job,
            "batch": self.batch,
            "level": self.level,
            "ok": self.ok,
            "restorable": self.restorable,
            "findings": [finding.to_dict() for finding in self.findings],
            "files": self.files,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "at": to_json_time(self.at),
        }


def verify(
    repository: Repository,
    job: str,
    savepoint: str,
    level: Level = "quick",
    *,
    progress: Progress | None = None,
    record: bool = True,
    parallel: int = 4,
    executor: Executor | None = None,
    by: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """Verify one savepoint.

    Args:
        repository: Where it is.
        job: `job` or `job/query`.
        savepoint: Its whole id.
        level: `quick` or `full`.
        progress: Told about files and bytes.
        record: Leave the result beside the manifest.
        parallel: How many objects are hashed at once.
        executor: Who hashes them; threads of this process where nobody is named.
        by: Who verifies, for the record.

    Raises:
        InputError: The level is not known.
        NotFoundError: There is no such savepoint.
        StorageError: The environment failed, so nothing can be said.
    """
    if level not in get_args(Level):
        raise InputError(f"There is no level {level!r}.", code="bad-level", hint="Levels: quick, full.")
    started = time.monotonic()
    findings: list[Finding] = []
    manifest: Manifest | None = None
    files = size_bytes = 0
    try:
        manifest = repository.load(job, savepoint)
    except (IntegrityError, FormatError) as error:
        findings.append(_manifest_finding(job, savepoint, error))
    if manifest is not None:
        files = len(list(manifest.all_files()))
        size_bytes = sum(manifest.objects().values())
        check = _Check(repository, manifest, executor or Threads(parallel))
        findings += check.quick() if level == "quick" else check.full(progress)
    findings += _repository_findings(repository, job, savepoint)
    report = VerifyReport(
        savepoint=savepoint,
        job=job,
        batch=manifest.batch if manifest else None,
        level=level,
        ok=not findings,
        restorable=not any(finding.severity == "error" for finding in findings),
        findings=tuple(findings),
        files=files,
        bytes=size_bytes,
        seconds=time.monotonic() - started,
        at=datetime.now(UTC),
    )
    if record:
        repository.record_verification(
            job,
            savepoint,
            level=report.level,
            ok=report.ok,
            findings=len(report.findings),
            files=report.files,
            bytes=report.bytes,
            seconds=round(report.seconds, 3),
            by=by,
        )
    return report


class _Check:
    """The check of one savepoint whose manifest is whole."""

    def __init__(self, repository: Repository, manifest: Manifest, executor: Executor) -> None:
        self.repository = repository
        self.executor = executor
        self.manifest = manifest
        self.objects = manifest.objects()
        self.entries: dict[str, list[FileEntry]] = {}
        for entry in manifest.all_files():
            self.entries.setdefault(entry.digest, []).append(entry)
        self.bad: set[str] = set()

    def quick(self) -> Iterator[Finding]:
        for digest, error in flaws(self.repository, self.objects):
            yield from self._findings(digest, error)

    def full(self, progress: Progress | None) -> Iterator[Finding]:
        yield from self.quick()
        rest = [digest for digest in self.objects if digest not in self.bad]
        meter = Meter(progress, "check", len(rest), sum(self.objects[digest] for digest in rest))
        flaws: dict[str, IntegrityError | FormatError] = {}

        def done(task: CheckTask, found: Flaws) -> None:
            flaws.update(found)
            meter.add(task.files, task.size_bytes)

        tasks = check_tasks(self.repository, {digest: self.objects[digest] for digest in rest})
        self.executor.run(Checking(self.repository), tasks, done)
        for digest in rest:
            if digest in flaws:
                yield from self._findings(digest, flaws[digest])
        whole = {entry.path: entry for entry in self.manifest.files if entry.digest not in self.bad}
        for path, cause in spark_checksums.disagreements(self.repository, whole):
            yield Finding(
                "spark-checksum",
                "error",
                path,
                cause,
                "The file was damaged before it was saved, and Spark will refuse it.",
                "Restore an older savepoint, and look at the disk of the checkpoint.",
            )

    def _findings(self, digest: str, error: IntegrityError | FormatError) -> Iterator[Finding]:
        """One finding for each file of the savepoint that lies in an object."""
        self.bad.add(digest)
        for entry in self.entries[digest]:
            hint = error.hint if error.code in ("index-damaged", "index-incomplete") else _USE_ANOTHER
            yield Finding(error.code, "error", entry.path, error.message, _NO_RESTORE, hint)


def _manifest_finding(job: str, savepoint: str, error: IntegrityError | FormatError) -> Finding:
    newer = isinstance(error, FormatError)
    return Finding(
        "manifest-unknown" if newer else "manifest-damaged",
        "error",
        f"savepoints/{job}/{savepoint}.json",
        error.message,
        _NO_RESTORE,
        error.hint if newer and error.hint else _USE_ANOTHER,
    )


def _repository_findings(repository: Repository, job: str, savepoint: str) -> Iterator[Finding]:
    """Damage to files of the repository that are no objects of this savepoint."""
    for damage in repository.check_index():
        yield Finding(
            damage.error.code,
            "warning",
            damage.key,
            damage.error.message,
            "Objects that only it lists are not found; the packs still have them.",
            damage.error.hint,
        )
    for key, error in repository.damaged_marks(job, savepoint):
        yield Finding(
            "mark-damaged",
            "warning",
            key,
            error.message,
            "Whether the savepoint is pinned or was verified is not known; a pin is assumed.",
            "Pin or unpin it anew, and verify again.",
        )
