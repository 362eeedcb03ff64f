"""Which of a job's two sites is the active one: numbered, create-only records, the same in both sites.

```
sites/0000000001.json    both sites know each other, and the primary is the active one
sites/0000000002.json    a fail-over to a site has begun: no site may start the job
sites/0000000003.json    that site is the active one
```

The highest number that can be read anywhere counts. Who reads both sites copies the newest record to the one
that is behind (`agree`), with its number: so a site that was cut off learns of a fail-over from any process
that reaches both. While there is no record, the primary is the active one.

A fail-over writes two records, because nothing may start from a checkpoint that is not restored yet, and
because the record that begins it may be copied by any process at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from streambank.control.control import JobControl
from streambank.control.processes import person
from streambank.control.records import Record, RecordStream
from streambank.core.errors import NotFoundError, RefusedError, StorageError
from streambank.core.names import PRIMARY, other_of
from streambank.core.shape import OMIT_EMPTY, JsonObject
from streambank.core.units import to_json_time, utc_now

PREFIX = "sites"
FENCED = "site-fenced"
"""The event by which the active site says that the other one knows of the fail-over at last."""
SiteState = Literal["failing-over", "active"]


@dataclass(frozen=True, slots=True)
class SiteRecord(JsonObject):
    """One record.

    Attributes:
        number: From 1, ascending; the same in both sites; numbers may be left out.
        state: `failing-over`: no site may start the job; `active`: `site` may.
        site: The site that becomes, or is, the active one.
        unfenced: The other site could not be reached: it may still run.
        savepoints: What it was restored from, by query; empty where its own checkpoint went on.
        generations: Of `failing-over`: the generation of each query at `site` when it began; 0 for none.
            A later one was made by this fail-over.
        left: The checkpoint that each of the savepoints was taken from: what came there after its batch is of
            a line that the job has left (forks.py).
    """

    number: int
    state: SiteState
    site: str
    was: str
    unfenced: bool
    by: Mapping[str, str]
    why: str
    at: datetime
    savepoints: Mapping[str, str] = field(default_factory=dict)
    generations: Annotated[Mapping[str, int], OMIT_EMPTY] = field(default_factory=dict)
    left: Annotated[Mapping[str, str], OMIT_EMPTY] = field(default_factory=dict)

    @property
    def active(self) -> str | None:
        """The site that may run the job; None while a fail-over is under way."""
        return self.site if self.state == "active" else None

    def describe(self) -> str:
        """`the standby is the active site since 2026-... (number 4, by anna)`."""
        what = (
            f"the {self.site} is the active site" if self.active else f"a fail-over to the {self.site} began"
        )
        return f"{what} at {to_json_time(self.at)} (number {self.number}, by {person(self.by)})"


class Sites:
    """The records of one site about which site is active."""

    def __init__(self, control: JobControl) -> None:
        self.control = control
        # The same at both sites, so signed for no place.
        self.records = RecordStream(control.store, PREFIX, signer=control.signer.of_no_place())

    def newest(self) -> SiteRecord | None:
        """What this site knows; None where it knows of no fail-over.

        Raises:
            FormatError: The record is damaged (code `damaged-record`).
            IntegrityError: It is not signed, and has to be (codes `not-signed`, `bad-signature`).
        """
        record = self.records.latest()
        return None if record is None else _of(record)

    def read(self, number: int) -> SiteRecord | None:
        """One record; None where there is none of this number: numbers may be left out.

        Raises:
            FormatError, IntegrityError, StorageError: See `newest`.
        """
        try:
            return _of(self.records.record(number, self.records.read(number)))
        except NotFoundError:
            return None

    def write(self, record: SiteRecord) -> bool:
        """Create the record; False where its number is taken by another one.

        Raises:
            RefusedError: Records are signed, and there is no key (code `signing-key-missing`).
            FormatError: No history of this site leads to its number (code `damaged-record`): it would be the
                newest here for ever, whatever becomes of the site that it comes from.
        """
        self.records.check_near(record.number)
        if self.records.create(record.number, record.to_dict()):
            return True
        there = self.read(record.number)
        return there is not None and there.to_dict() == record.to_dict()

    def all(self) -> list[SiteRecord]:
        """Every record, oldest first."""
        return [_of(record) for record in self.records.all()]


def _of(record: Record) -> SiteRecord:
    return record.decode(SiteRecord, lacking={"why": ""})


def newer(one: SiteRecord | None, other: SiteRecord | None, job: str) -> SiteRecord | None:
    """The record that counts of two that sites have.

    Raises:
        RefusedError: They say different things under one number (code `sites-disagree`): a person decided at
            each, while neither reached the other.
    """
    if one is None or other is None:
        return one or other
    if one.number == other.number and (one.state, one.site) != (other.state, other.site):
        raise RefusedError(
            f"The two sites of job {job} do not agree which of them is active: by one {one.describe()}, by "
            f"the other {other.describe()}.",
            code="sites-disagree",
            hint="Look which site has the right output, and let that one go on: "
            f"`streambank failover {job} --to SITE`.",
        )
    return max(one, other, key=lambda record: record.number)


def which_counts(own: Sites, other: Sites, job: str) -> SiteRecord | None:
    """The record that counts, by what both sites say. Writes nothing.

    The newest record of the site that is behind is held against the one of its number at the other site: two
    persons who decide seldom write equally many records.

    Raises:
        RefusedError: See `newer`.
        FormatError, IntegrityError, StorageError: See `Sites.newest`.
    """
    return _compare(own, own.newest(), other, other.newest(), job)


def _compare(
    own: Sites, mine: SiteRecord | None, other: Sites, theirs: SiteRecord | None, job: str
) -> SiteRecord | None:
    counts = newer(mine, theirs, job)
    if mine is not None and theirs is not None and mine.number != theirs.number:
        behind, ahead = (mine, other) if mine.number < theirs.number else (theirs, own)
        newer(behind, ahead.read(behind.number), job)
    return counts


def agree(own: Sites, other: Sites, job: str) -> SiteRecord:
    """The record that counts, known to both sites when this returns.

    A site without any record, where the own one knows of a fail-over, counts as one that does not answer:
    a disk that is not mounted looks like that.

    Raises:
        RefusedError: See `newer`.
        StorageError: One of the sites does not answer; or the other has no records (code `site-empty`).
        FormatError, IntegrityError: A record is damaged.
    """
    mine, theirs = own.newest(), other.newest()
    counts = _compare(own, mine, other, theirs, job)
    if counts is None:
        return _introduce(own, other)
    if theirs is None and not other.control.store.names():
        raise StorageError(
            f"There are no records of job {job} at {other.control.store.uri}.",
            code="site-empty",
            hint="Mount the disk, or look at the declared locations of the other site.",
        )
    for sites, known in ((own, mine), (other, theirs)):
        if known is None or known.number < counts.number:
            sites.write(counts)  # where another was faster, the next look sees what that wrote
    note_fenced(own, counts)
    return counts


def _introduce(own: Sites, other: Sites) -> SiteRecord:
    """The first record, by which each site knows that the other one has records.

    The other one gets it first: what the own one knows, and the other one does not, would be a loss.
    """
    record = SiteRecord(1, "active", PRIMARY, PRIMARY, False, {}, "there was no fail-over yet", utc_now())
    for sites in (other, own):
        sites.write(record)
    return record


def note_fenced(own: Sites, counts: SiteRecord) -> None:
    """Leave behind at the active site, once, that a site that could not be fenced has learnt of it now."""
    if counts.unfenced and fenced_at(own.control, counts) is None:
        own.control.record_event(FENCED, number=counts.number, site=other_of(counts.site))


def fenced_at(control: JobControl, counts: SiteRecord) -> str | None:
    """When the site that was active before has learnt of a fail-over; None where it has not, or it need not.

    Args:
        control: The job's records at the active site.
    """
    event = control.last_event(FENCED)
    return str(event["at"]) if event is not None and event.get("number") == counts.number else None
