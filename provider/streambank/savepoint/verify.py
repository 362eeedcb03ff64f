"""Verifying a savepoint: is every byte of it what was saved?

* quick: the manifest is whole, each object is there, and its file has the size it was written with.
* full: each byte is hashed, the tables of the packs are checked, and Spark's own checksums agree.
* deep: after a full one that found nothing wrong, whoever knows Spark has it open all state.

What is wrong comes back as findings, each with what it is about, the cause, the effect and a way out. The
result is recorded beside the manifest. `sampling` looks at a share of a whole repository instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from streambank.core.choices import VERIFY_LEVELS, VerifyLevel
from streambank.core.errors import FormatError, IntegrityError, StorageError, StreambankError, check_choice
from streambank.core.finding import Finding
from streambank.core.python310 import UTC
from streambank.core.shape import MILLIS, JsonObject
from streambank.repository.coverage import Coverage
from streambank.repository.holds import Holds
from streambank.repository.manifest import FileEntry, Manifest
from streambank.repository.repository import Repository
from streambank.repository.signatures import UNSIGNED
from streambank.savepoint import spark_checksums
from streambank.savepoint.formats import unknown_versions
from streambank.savepoint.warnings import left_out
from streambank.work.check import check_objects
from streambank.work.damage import BAD_SECTOR
from streambank.work.executor import DEFAULT_PACE, Pace
from streambank.work.pace import Meter

Depth = Literal["quick", "full", "sampled", "deep"]
"""How deep a report looked; `sampled` is what `sampling` does."""
Deeper = Callable[[str, str], Iterable[Finding]]
"""Opens the state of a savepoint, given its job and its id, and tells what is wrong with it."""

NOT_CHECKED = "state-not-checked"
"""Code of a finding: state was not opened, for a reason that need not lie in it."""
_NOT_READ = (NOT_CHECKED, "wrong-state-schema")
_NO_RESTORE = "The savepoint cannot be restored."
_REPAIRABLE = ("index-damaged", "index-incomplete", "pack-damaged")
_USE_ANOTHER = (
    "Restore another savepoint (`latest-good` finds one), or `streambank repair` this one from a replica."
)


@dataclass(frozen=True, slots=True)
class VerifyReport(JsonObject):
    """What a verification found.

    Attributes:
        batch: Its batch; None where the manifest cannot be read.
        ok: Whether nothing is wrong: what is only worth knowing may be found all the same.
        restorable: Whether there is no finding of severity `error`, so that the savepoint can be restored.
        bytes: How many bytes were hashed; for `quick`, whose sizes were compared.
    """

    savepoint: str
    job: str
    batch: int | None
    level: Depth
    ok: bool
    restorable: bool
    findings: tuple[Finding, ...]
    files: int
    bytes: int
    seconds: Annotated[float, MILLIS]
    at: datetime

    @classmethod
    def of(
        cls,
        job: str,
        savepoint: str,
        manifest: Manifest | None,
        level: Depth,
        findings: Iterable[Finding],
        size_bytes: int,
        started: float,
    ) -> VerifyReport:
        """What was found up to now, by a look that has begun at `started` (`time.monotonic`)."""
        found = tuple(findings)
        return cls(
            savepoint=savepoint,
            job=job,
            batch=manifest.batch if manifest else None,
            level=level,
            ok=all(finding.severity == "info" for finding in found),
            restorable=_restorable(found),
            findings=found,
            files=sum(1 for _ in manifest.all_files()) if manifest else 0,
            bytes=size_bytes,
            seconds=time.monotonic() - started,
            at=datetime.now(UTC),
        )


def verify(
    repository: Repository,
    job: str,
    savepoint: str,
    level: VerifyLevel = "quick",
    *,
    pace: Pace = DEFAULT_PACE,
    record: bool = True,
    by: Mapping[str, Any] | None = None,
    deeper: Deeper | None = None,
) -> VerifyReport:
    """Verify one savepoint; a full verification that is recorded holds it meanwhile.

    Args:
        record: Leave the result beside the manifest; nothing is written otherwise. Where that cannot be
            written, as on a read-only disk, the report says so in the finding `not-recorded`.
        deeper: With `full`: looks deeper where nothing is wrong so far; the report is of level `deep` then,
            unless some of the state could not be examined.

    Raises:
        InputError: The level is not known (code `bad-choice`), or a number cannot be right.
        NotFoundError: There is no such savepoint, or not any more.
    """
    check_choice(level, "level", VERIFY_LEVELS)
    started = time.monotonic()
    depth: Depth = level
    findings: list[Finding] = []
    manifest: Manifest | None = None
    size_bytes = 0
    try:
        manifest = repository.load(job, savepoint)
    except (IntegrityError, FormatError) as error:
        findings.append(manifest_finding(job, savepoint, error))
    if manifest is not None:
        size_bytes = sum(manifest.objects().values())
        check = _Check(repository, manifest, pace)
        holds = Holds(repository, "verify", by)
        holding: AbstractContextManager[object] = nullcontext()
        if record and level == "full":
            holding = holds.held(job, savepoint)
        with holding:
            findings += check.quick() if level == "quick" else check.full()
            if deeper is not None and level == "full" and _restorable(findings):
                deep = list(deeper(job, savepoint))
                findings += deep
                # What could not be examined is not therefore broken, nor was it looked at: it was hashed.
                depth = "full" if any(problem.code in _NOT_READ for problem in deep) else "deep"
        findings += [_not_held(job, savepoint, warning) for warning in holds.warnings]
        findings += left_out_findings(manifest)
    findings += repository_findings(repository, job, savepoint)
    report = VerifyReport.of(job, savepoint, manifest, depth, findings, size_bytes, started)
    if record:
        if level == "full" and manifest is not None:
            # What Spark cannot read stands as damage until all is looked at again, as wrong bytes do.
            coverage = Coverage.whole(report.at, report.restorable)
        else:
            coverage = repository.coverage(job, savepoint)
        try:
            leave_record(repository, report, coverage, by)
        except StorageError as error:
            return replace(report, findings=(*report.findings, _not_recorded(job, savepoint, error)))
    return report


def _restorable(findings: Iterable[Finding]) -> bool:
    return not any(finding.severity == "error" for finding in findings)


def leave_record(
    repository: Repository, report: VerifyReport, coverage: Coverage, by: Mapping[str, Any] | None
) -> None:
    """Leave a report beside the manifest that it is about.

    Raises:
        NotFoundError: There is no such savepoint any more.
    """
    repository.record_verification(
        report.job,
        report.savepoint,
        level=report.level,
        ok=report.restorable,  # a note or a warning is no damage: `latest-good` must not walk past it
        findings=len(report.findings),
        files=report.files,
        bytes=report.bytes,
        seconds=round(report.seconds, 3),
        coverage=coverage,
        by=by,
    )


class _Check:
    def __init__(self, repository: Repository, manifest: Manifest, pace: Pace) -> None:
        self.repository = repository
        self.pace = pace
        self.manifest = manifest
        self.objects = manifest.objects()
        self.entries: dict[str, list[FileEntry]] = {}
        for entry in manifest.all_files():
            self.entries.setdefault(entry.digest, []).append(entry)
        self.bad: set[str] = set()

    def quick(self) -> Iterator[Finding]:
        shared: list[str] = []
        found = dict(flaws(self.repository, self.objects, also=BAD_SECTOR, shared=shared))
        unread = [digest for digest, error in found.items() if isinstance(error, StorageError)]
        for digest in unread:  # once more: a device may fail for a moment
            del found[digest]
        found |= flaws(self.repository, {digest: self.objects[digest] for digest in unread}, also=BAD_SECTOR)
        for digest, error in found.items():
            yield from self._findings(digest, error)
        if shared:
            yield self._shared(shared)

    def _shared(self, digests: list[str]) -> Finding:
        first = self.entries[digests[0]][0]
        return Finding(
            "objects-shared",
            "info",
            first.path,
            f"{len(digests)} objects share their bytes with files elsewhere: a restore has linked them.",
            "Damage to such a file also damages the savepoint: it is not an independent backup of them.",
            "Restore without --link if the savepoint must be independent, or keep a replica.",
        )

    def full(self) -> Iterator[Finding]:
        yield from self.quick()
        rest = [digest for digest in self.objects if digest not in self.bad]
        objects = {digest: self.objects[digest] for digest in rest}
        meter = Meter(self.pace.progress, "check", len(objects), sum(objects.values()))
        wrong = check_objects(
            self.repository, objects, self.pace.who, meter=meter, rate=self.pace.rate, also=BAD_SECTOR
        )
        for digest in rest:
            if digest in wrong:
                yield from self._findings(digest, wrong[digest])
        whole = {entry.path: entry for entry in self.manifest.files if entry.digest not in self.bad}
        yield from checksum_findings(self.repository, whole)
        for path, error in unknown_versions(self.repository, whole.values()):
            hint = error.hint or _USE_ANOTHER
            yield Finding(error.code, "error", path, error.message, "Spark refuses the file.", hint)

    def _findings(self, digest: str, error: StreambankError) -> Iterator[Finding]:
        self.bad.add(digest)
        yield from object_findings(self.entries[digest], error)


def left_out_findings(manifest: Manifest) -> Iterator[Finding]:
    """That a savepoint lacks files of its checkpoint which are not understood."""
    if (lacks := left_out(manifest)) is not None:
        yield Finding(
            "files-left-out",
            "info",
            str(manifest.left_out[0].get("example") or ""),
            lacks,
            "What Spark itself needs is there.",
            "Find out which connector or program wrote them. If the query needs them, report it: until then "
            "no savepoint of it is complete.",
        )


def _not_held(job: str, savepoint: str, warning: str) -> Finding:
    return Finding(
        "not-held",
        "info",
        f"marks/{job}/{savepoint}",
        warning,
        "If it was expired and swept meanwhile, some of its files are missing.",
        "Give the right to write marks there.",
    )


def _not_recorded(job: str, savepoint: str, error: StorageError) -> Finding:
    return Finding(
        "not-recorded",
        "info",
        f"marks/{job}/{savepoint}",
        f"The result of the verification could not be recorded beside the savepoint: {error.message}",
        "Neither `latest-good` nor retention knows of this verification.",
        "Give the right to write marks there, and verify again.",
    )


def object_findings(entries: Iterable[FileEntry], error: StreambankError) -> Iterator[Finding]:
    """One finding for each file of a savepoint that lies in a bad object."""
    for entry in entries:
        hint = error.hint if error.code in _REPAIRABLE else _USE_ANOTHER
        yield Finding(error.code, "error", entry.path, error.message, _NO_RESTORE, hint)


def checksum_findings(repository: Repository, entries: Mapping[str, FileEntry]) -> Iterator[Finding]:
    """Files whose objects are whole, by path, that Spark's own checksums speak against."""
    for path, cause in spark_checksums.disagreements(repository, entries):
        yield Finding(
            "spark-checksum",
            "error",
            path,
            cause,
            "The file was damaged before it was saved, and Spark will refuse it.",
            "Restore an older savepoint, and look at the disk of the checkpoint.",
        )


def manifest_finding(job: str, savepoint: str, error: IntegrityError | FormatError) -> Finding:
    """What a manifest that cannot be used comes to."""
    newer = isinstance(error, FormatError)
    if error.code in UNSIGNED:
        code, newer = error.code, True  # its hint is of more use than the one for damage
    else:
        code = "manifest-unknown" if newer else "manifest-damaged"
    return Finding(
        code,
        "error",
        f"savepoints/{job}/{savepoint}.json",
        error.message,
        _NO_RESTORE,
        error.hint if newer and error.hint else _USE_ANOTHER,
    )


def repository_findings(repository: Repository, job: str, savepoint: str) -> Iterator[Finding]:
    """Damage to files of the repository that are no objects of this savepoint."""
    for damage in repository.objects.index.check():
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
            "Pin or unpin it again, then verify again.",
        )


Flaw = tuple[str, StreambankError]
"""Digest of an object, and what is wrong with it."""


def flaws(
    repository: Repository,
    objects: Mapping[str, int],
    *,
    also: Set[str] = frozenset(),
    shared: list[str] | None = None,
) -> Iterator[Flaw]:
    """What is wrong with objects, as far as their names and sizes and the tables of packs tell.

    Args:
        also: Codes of storage errors that are flaws too; any other one is raised.
    """
    packs: dict[str, StreambankError | None] = {}
    files = repository.objects.look_up(objects)
    for digest, size_bytes in objects.items():
        try:
            place = repository.objects.locate(digest, file=files.get(digest))
        except (IntegrityError, FormatError, StorageError) as error:
            if isinstance(error, StorageError) and error.code not in also:
                raise
            yield digest, error
            continue
        while place.kind == "pack" and place.key not in packs:
            problem = packs[place.key] = _pack_error(repository, place.key, also)
            if problem is not None and problem.code == "pack-missing":
                place = repository.objects.locate(digest, gone=place.key)
        if shared is not None and place.names > 1:
            shared.append(digest)
        if place.length != size_bytes:
            yield (
                digest,
                IntegrityError(
                    f"{place.key} holds {place.length} bytes of a file that has {size_bytes}.",
                    code="object-damaged",
                    hint="Use another savepoint, or `streambank repair` this one from a replica.",
                ),
            )
            continue
        if place.kind == "pack" and (problem := packs[place.key]) is not None:
            yield digest, problem


def _pack_error(repository: Repository, key: str, also: Set[str] = frozenset()) -> StreambankError | None:
    try:
        repository.objects.check_pack(key.rpartition("/")[2])
    except (IntegrityError, FormatError, StorageError) as error:
        if isinstance(error, StorageError) and error.code not in also:
            raise
        return error
    return None


def whole_objects(repository: Repository, manifest: Manifest) -> set[str]:
    """The digests of a savepoint's objects that are there with the right size."""
    objects = manifest.objects()
    return set(objects) - {digest for digest, _ in flaws(repository, objects)}


def healed_objects(repository: Repository, manifest: Manifest) -> set[str]:
    """`whole_objects`, once damaged tables of contents are written again that the index knows."""
    whole = whole_objects(repository, manifest)
    if _repair_tables(repository, manifest.objects().keys() - whole):
        whole = whole_objects(repository, manifest)
    return whole


def _repair_tables(repository: Repository, digests: Iterable[str]) -> bool:
    """Whether any table of contents was repaired, of the packs with objects that are not whole."""
    packs = set()
    for digest in digests:
        try:
            place = repository.objects.locate(digest)
        except (IntegrityError, FormatError):
            continue  # it is nowhere, and no table would help
        if place.kind == "pack" and place.key not in packs and _pack_error(repository, place.key) is not None:
            packs.add(place.key)
    return any([repository.objects.index.repair(key.rpartition("/")[2]) for key in sorted(packs)])
