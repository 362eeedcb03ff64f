"""Sampled verification: each run hashes a share of the repository, and consecutive runs cover all of it.

Every run looks whether each object is there with its size, as a quick verification does, and hashes those in
the next window of the circle (`coverage`). Where the next window begins is a small sealed file that is
replaced after each run. It is moved on only once the window was hashed and the results are recorded: a run
that is killed, or fails, is done again by the next one, and nothing is passed over. Of two runs at once both
hash the same window, and the file says the same afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from streambank.core.errors import FormatError, IntegrityError, NotFoundError, StreambankError
from streambank.core.finding import Finding
from streambank.core.shape import HIDDEN, MILLIS, encode
from streambank.core.units import to_json_time, utc_now
from streambank.repository.coverage import POSITIONS, Window, position
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.repository.sealed import damaged, decode_record, encode_record
from streambank.savepoint.verify import (
    VerifyReport,
    checksum_findings,
    flaws,
    leave_record,
    manifest_finding,
    object_findings,
    repository_findings,
)
from streambank.storage.store import read_record
from streambank.storage.threads import at_once
from streambank.work.damage import BAD_DISK, damaged_objects
from streambank.work.executor import DEFAULT_PACE, Pace
from streambank.work.pace import Meter

Bad = Mapping[str, StreambankError]


@dataclass(frozen=True, slots=True)
class SampleReport:
    """What one sampled run found.

    Attributes:
        window: The part of the circle that it hashed.
        runs: So many consecutive runs of the same share hash everything.
        all_objects: How many objects the savepoints need, each counted once.
    """

    window: Annotated[Window, HIDDEN]
    runs: int
    objects: int
    bytes: int
    all_objects: int
    all_bytes: int
    findings: Annotated[tuple[Finding, ...], HIDDEN]
    savepoints: Annotated[tuple[VerifyReport, ...], HIDDEN]
    seconds: Annotated[float, MILLIS]

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {
            "share": round(self.window.width / POSITIONS, 6),
            "from": round(self.window.start / POSITIONS, 6),
            "to": round(self.window.end / POSITIONS, 6),
        }


def cursor_key(job: str | None) -> str:
    """Where it is kept how far sampled runs are: over all savepoints, or over those of one job."""
    return f"sampling/jobs/{job}.json" if job else "sampling/repository.json"


def verify_sample(
    repository: Repository,
    share: Fraction,
    *,
    job: str | None = None,
    pace: Pace = DEFAULT_PACE,
    by: Mapping[str, Any] | None = None,
) -> SampleReport:
    """Hash the next share of a repository, and record the results beside each savepoint.

    Args:
        job: Only this one's savepoints; such runs go on by themselves, apart from those over all.

    Raises:
        InputError: `parallel` or the rate is less than 1.
        StorageError: The place as a whole failed; the next run hashes the same share again. A single file
            that the disk does not give is a finding.
    """
    started = time.monotonic()
    start, findings = _read_cursor(repository, job)
    window = Window.of(start, share)
    which = [(each.job, each.savepoint) for each in repository.manifests(job)]
    objects, wanted = _survey(repository, which, window)
    bad: dict[str, StreambankError] = dict(flaws(repository, objects, also=BAD_DISK))
    chosen = {digest: objects[digest] for digest in objects if digest in wanted and digest not in bad}
    meter = Meter(pace.progress, "check", len(chosen), sum(chosen.values()))
    many = pace.parallel or at_once(repository.store)
    bad |= dict(
        damaged_objects(repository, chosen, parallel=many, rate=pace.rate, meter=meter, also=BAD_DISK)
    )
    reports = [
        report
        for each in which
        if (report := _judge(repository, *each, window, objects, bad, chosen, by)) is not None
    ]
    record = {"position": window.end, "at": to_json_time(utc_now()), "by": dict(by or {})}
    repository.store.write(cursor_key(job), encode_record(record, repository.digest_name))
    return SampleReport(
        window=window,
        runs=-(-POSITIONS // window.width),
        objects=len(chosen),
        bytes=sum(chosen.values()),
        all_objects=len(objects),
        all_bytes=sum(objects.values()),
        findings=findings,
        savepoints=tuple(reports),
        seconds=time.monotonic() - started,
    )


def _survey(
    repository: Repository, which: Sequence[tuple[str, str]], window: Window
) -> tuple[dict[str, int], set[str]]:
    """Digest and size of all objects that savepoints need, and those that this run has to hash.

    These are the ones in the window, and Spark's checksums of files in the window. Manifests that cannot be
    read are `_judge`'s matter.
    """
    objects: dict[str, int] = {}
    wanted: set[str] = set()
    for job, savepoint in which:
        try:
            manifest = repository.load(job, savepoint)
        except (NotFoundError, IntegrityError, FormatError):
            continue
        objects |= manifest.objects()
        digests = {entry.path: entry.digest for entry in manifest.files}
        for path, digest in digests.items():
            main = digests.get(path.removesuffix(".crc"), digest)
            if window.holds(position(digest)) or window.holds(position(main)):
                wanted.add(digest)
        wanted.update(each.digest for each in manifest.sink_files() if window.holds(position(each.digest)))
    return objects, wanted


def _judge(
    repository: Repository,
    job: str,
    savepoint: str,
    window: Window,
    found: Mapping[str, int],
    bad: Bad,
    chosen: Mapping[str, int],
    by: Mapping[str, Any] | None,
) -> VerifyReport | None:
    """What the run found in one savepoint, recorded; None where that was deleted since it was listed."""
    started = time.monotonic()
    findings: list[Finding] = []
    manifest: Manifest | None = None
    try:
        manifest = repository.load(job, savepoint)
    except NotFoundError:
        return None
    except (IntegrityError, FormatError) as error:
        findings.append(manifest_finding(job, savepoint, error))
    objects: Mapping[str, int] = {}
    if manifest is not None:
        objects = manifest.objects()
        for digest in bad.keys() & objects.keys():
            entries = [entry for entry in manifest.all_files() if entry.digest == digest]
            findings += object_findings(entries, bad[digest])
        whole = chosen.keys() - bad.keys()
        hashed = {entry.path: entry for entry in manifest.files if entry.digest in whole}
        findings += checksum_findings(repository, hashed)
    findings += repository_findings(repository, job, savepoint)
    findings.sort(key=lambda finding: finding.file)
    size_bytes = sum(objects[digest] for digest in objects.keys() & chosen.keys())
    report = VerifyReport.of(job, savepoint, manifest, "sampled", findings, size_bytes, started)
    coverage = repository.coverage(job, savepoint)
    if manifest is not None and objects.keys() <= found.keys():  # else it was healed only just now
        coverage = coverage.after(window, report.at, report.restorable)
    try:
        leave_record(repository, report, coverage, by)
    except NotFoundError:
        return None
    return report


def _read_cursor(repository: Repository, job: str | None) -> tuple[int, tuple[Finding, ...]]:
    """Where the next window begins; the beginning, and a finding, where that cannot be read."""
    key = cursor_key(job)
    what = f"record of sampled verifications {key}"
    try:
        start = decode_record(read_record(repository.store, key), what).get("position")
        if type(start) is not int or not 0 <= start < POSITIONS:
            raise damaged(what, "it names no position")
    except NotFoundError:
        return 0, ()
    except IntegrityError as error:
        finding = Finding(
            "sampling-restarted",
            "warning",
            key,
            error.message,
            "Sampled verification started over, so some bytes are read later than they were due.",
            "Nothing needs to be done: the record is complete again.",
        )
        return 0, (finding,)
    return start, ()
