"""Generations: the directories a query's checkpoint has lived in, and the pointer to the one that counts.

Generation 1 is the declared checkpoint; generation n is its sibling `<checkpoint>.g000n`, or the directory of
an earlier one that counts again. The pointer is a stream of create-only records, so a switch is one
conditional create: it has happened, or it has not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated

from streambank.control.operation import Operation
from streambank.control.records import Record, RecordStream
from streambank.control.signed import Signer
from streambank.core.errors import ConflictError, FormatError, IntegrityError, RefusedError
from streambank.core.names import MAIN, QueryRef
from streambank.core.shape import OMIT_EMPTY, JsonName, JsonObject
from streambank.core.units import to_json_time, utc_now
from streambank.storage import service_name
from streambank.storage.store import Store


@dataclass(frozen=True, slots=True)
class Generation(JsonObject):
    """One directory of a query's checkpoint.

    Attributes:
        number: From 1, ascending; numbers may be left out.
        from_savepoint: The savepoint it was restored from; None for the declared one.
        new_sinks: Where the query writes from this generation on: the old output directory of a file sink to
            the new one, both as URIs.
        again: The generation in whose directory it is, where that one counts again; None for a directory of
            its own.
    """

    number: Annotated[int, JsonName("generation")]
    location: str
    from_savepoint: str | None
    made_at: datetime
    by: Mapping[str, str]
    new_sinks: Annotated[Mapping[str, str], OMIT_EMPTY] = field(default_factory=dict)
    again: Annotated[int | None, OMIT_EMPTY] = None

    @property
    def base(self) -> str:
        """The declared checkpoint that this is a generation of."""
        called = self.again or self.number
        return self.location.removesuffix(_suffix(called)) if called > 1 else self.location

    def check_of(self, declared: str, called: str) -> None:
        """Make sure that its directory is one of a declared checkpoint, whatever its record says.

        Raises:
            RefusedError: It is another one (code `foreign-generation`).
        """
        if service_name(self.base) != service_name(declared):
            raise RefusedError(
                f"The record of generation {self.number} of {called} names {self.location}, which is no "
                f"directory of the checkpoint {declared}.",
                code="foreign-generation",
                hint="Declare the checkpoint in which the query began. If that is declared, somebody who may "
                "write the job's records has altered this one: look at it, and move it away.",
            )

    def places(self) -> Iterator[str]:
        """Its directory, and those where the query writes from it on."""
        yield self.location
        yield from self.new_sinks.values()


class Generations:
    """The generations of one query of a job.

    Args:
        query: The query's name; None for the only one.
    """

    def __init__(
        self, store: Store, job: str, query: str | None = None, *, signer: Signer | None = None
    ) -> None:
        self.job = job
        self.query = query or MAIN
        self.records = RecordStream(store, f"generation/{self.query}", signer=signer, anywhere=True)
        self.removals = RecordStream(store, f"removed/{self.query}", signer=signer)

    def current(self) -> Generation | None:
        """The one that counts; None before the first start.

        Raises:
            FormatError: Its record is damaged (code `damaged-record`).
            IntegrityError: It is not signed, and has to be (codes `not-signed`, `bad-signature`).
        """
        record = self.records.latest()
        return None if record is None else record.decode(Generation)

    def all(self) -> list[Generation]:
        """Every generation, oldest first."""
        return [record.decode(Generation) for record in self.records.all()]

    def known(self) -> list[Generation]:
        """Every generation, oldest first; the current one alone where an older record is damaged."""
        try:
            return self.all()
        except (FormatError, IntegrityError):
            current = self.current()
            return [] if current is None else [current]

    def ensure_first(self, location: str, *, by: Mapping[str, str]) -> Generation:
        """The current generation; where there is none yet, the declared checkpoint becomes generation 1.

        Raises:
            RefusedError: The declared checkpoint is another one than generation 1 (code
                `checkpoint-changed`): the query would silently go on in the old place, or start from nothing
                in the new one. Or the records are signed, and there is no key (`signing-key-missing`).
            IntegrityError: A record is not signed, and has to be (codes `not-signed`, `bad-signature`).
        """
        self._require()
        if not self.records.numbers():
            self.records.create(1, Generation(1, location, None, utc_now(), by).to_dict())
        generations = self.all()
        self.check_of(generations, location)
        return generations[-1]

    def check_of(self, generations: Sequence[Generation], declared: str) -> None:
        """Make sure that the directories of generations are those of a declared checkpoint.

        Args:
            generations: Them, oldest first.

        Raises:
            RefusedError: The query began in another one (code `checkpoint-changed`), or a record names
                another one than that (`foreign-generation`).
        """
        for generation in generations:
            if generation.number == 1 and service_name(generation.base) != service_name(declared):
                raise RefusedError(
                    f"Job {self.job} declares the checkpoint {declared}, but query {self.query} began in "
                    f"{generation.base}.",
                    code="checkpoint-changed",
                    hint="Declare the old location again. To begin from nothing, give the job a new name.",
                )
            generation.check_of(declared, str(QueryRef.of(self.job, self.query)))

    def adopt(self, declared: str, location: str, *, above: int, by: Mapping[str, str]) -> Generation | None:
        """Let a directory of the query count although its records are lost; None where it is none of its own.

        Args:
            location: The directory: the declared checkpoint, or that of a later generation.
            above: The number of the newest generation that is known of: were the lost records to come back,
                they would be seen to be older.
            by: Who accepts that the records are lost.
        """
        called = _called(declared, location)
        if called is None:
            return None
        number = max(self.ensure_first(declared, by=by).number, above) + 1
        here = declared + _suffix(called) if called > 1 else declared
        generation = Generation(number, here, None, utc_now(), by, {}, called)
        return generation if self.records.create(number, generation.to_dict()) else None

    def propose(self, *, taken: Callable[[str], bool], base: str | None = None, above: int = 0) -> Generation:
        """The next generation to be filled and then switched to.

        Args:
            taken: Whether something lies at a location already, such as the leftovers of a restore that died;
                such numbers are left out.
            base: The declared checkpoint, where the job was never started under Streambank.
            above: The newest generation that is known of besides these records: it gets a higher number.

        Raises:
            ConflictError: There is no generation yet, and no `base` (code `no-generation`).
            RefusedError: The records are signed, and there is no key (`signing-key-missing`): `switch`
                would be refused after everything was filled.
            FormatError: So would it be by a false mark (`damaged-record`).
        """
        self._require()
        self.records.refuse_false_mark()
        current = self.current()
        first = current.base if current else base
        if first is None:
            raise ConflictError(
                f"Job {self.job} has no checkpoint yet for query {self.query}.",
                code="no-generation",
                hint="Name the job's declared checkpoint, or start the job once.",
            )
        number = max(current.number if current else 1, above) + 1
        while taken(location := first + _suffix(number)):
            number += 1
        return Generation(number, location, None, utc_now(), {})

    def reinstated(self, earlier: Generation, *, by: Mapping[str, str]) -> Generation:
        """The generation in which an earlier one counts again, to be switched to."""
        self._require()
        number = max(self.records.numbers()) + 1
        return replace(
            earlier, number=number, made_at=utc_now(), by=dict(by), again=earlier.again or earlier.number
        )

    def _require(self) -> None:
        """Make sure that something here may rest on the records."""
        self.records.require_key()
        if self.records.signer is not None:
            self.records.signer.require_place()

    def record_removal(self, generation: int, location: str, *, by: Mapping[str, str], why: str) -> None:
        """Leave behind that a generation's directory is removed, before the first file of it goes."""
        data = {"at": to_json_time(utc_now()), "generation": generation, "location": location}
        self.removals.append({**data, "by": dict(by), "why": why})

    def removal(self, generation: Generation) -> Record | None:
        """The record of the removal of a generation's directory; None while it was not begun.

        Raises:
            FormatError: A record cannot be read.
        """
        removals = self.removals.newest_first()
        return next(
            (removal for removal in removals if removal.data.get("location") == generation.location), None
        )

    def switch(self, generation: Generation, *, operation: Operation) -> None:
        """Let a filled generation be the one that counts, from the next start on.

        Args:
            generation: As `propose` gave it, with the savepoint and who asked filled in; or `reinstated`.
            operation: The operation lock that has been held since before that.

        Raises:
            ConflictError: The lock was lost (`claim-lost`), or another generation came first
                (`generation-moved`).
        """
        operation.check()
        numbers = self.records.numbers()
        if (numbers and numbers[-1] >= generation.number) or not self.records.create(
            generation.number, generation.to_dict()
        ):
            raise ConflictError(
                f"Job {self.job} has meanwhile moved on to another generation of query {self.query}.",
                code="generation-moved",
                hint="Plan again from the job's current generation.",
            )


def is_generation_of(declared: str, location: str) -> bool:
    """Whether a location is a declared checkpoint, or the directory of a later generation of it."""
    return _called(declared, location) is not None


def _called(declared: str, location: str) -> int | None:
    """The generation in whose directory a location is; None where it is none of a declared checkpoint's."""
    place, first = str(service_name(location)), str(service_name(declared))
    if place == first:
        return 1
    found = re.fullmatch(r"\.g([0-9]{4,})", place.removeprefix(first))
    number = int(found[1]) if found is not None else 0
    return number if number > 1 and place == first + _suffix(number) else None


def _suffix(number: int) -> str:
    return f".g{number:04d}"
