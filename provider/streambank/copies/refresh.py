"""A copy of a job's production state is made, or made again, while the job runs on.

1. The copy is held: its own operation lock and lease. A driver that runs on it is not harmed: it refuses the
   refresh. Nothing of the live job is held.
2. What killed refreshes have left is removed.
3. A savepoint of each query is chosen and verified, in the repository or a replica, and held there. Its
   sources are asked whether they still have what the copy would read next; once more right before step 6.
4. A record names the directories that are filled now (`refreshes/`), and each of them is claimed by a file
   beside it (`claims`).
5. Each savepoint is written into a fresh directory, every byte hashed, with a new query id; and each output
   of a file sink is begun in a fresh directory, with a log that Spark goes on from.
6. One record (`refreshed/`) makes all of them the copy: this is the only step that counts.
7. The generations of the copy follow that record. What starts on the copy makes up for it, if this was cut
   off.
8. Directories go that the policy no longer keeps, never those in use.

What is cut off before step 6 leaves the copy in use as it was; after it, the new one is in use. The live
checkpoint, outputs, source positions, records and lease are only read. Before all of this, and before each
removal, the places of the copy are held against what is live.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from streambank.control.copies import (
    CopiedQuery,
    begin_refresh,
    begun_refreshes,
    commit_refresh,
    forget_refreshes,
    last_refresh,
    settle_refresh,
)
from streambank.control.generations import Generation
from streambank.control.marker import marker_location, renew_marker
from streambank.copies.claims import claim, is_claimed, is_taken, release
from streambank.copies.preconditions import against, check_apart, check_removable, outputs_of, saved_logs
from streambank.copies.remove import number_of, remove_old
from streambank.copies.report import QueryRefresh, RefreshReport
from streambank.core.choices import SOURCE_CHOICES, SourceChoice
from streambank.core.errors import RefusedError, StreambankError, check_choice
from streambank.core.names import SEPARATOR
from streambank.core.units import utc_now
from streambank.core.verb_options import RefreshOptions
from streambank.declaration.declaration import Job
from streambank.declaration.places.copies import NEAREST
from streambank.driver.outputs import FILES, Output
from streambank.driver.preflight import declared_query, held_elsewhere
from streambank.driver.redirected import place_for
from streambank.inputs.replayable import replayable_effect, replays_of, source_effect
from streambank.inputs.sources import Sources, check_still_there, look_at_sources
from streambank.kafka.settings import Brokers
from streambank.procedure.procedure import Procedure
from streambank.recovery.choosing.together import choose_together, from_place
from streambank.recovery.lay_out import lay_out_copy
from streambank.recovery.restore import Held, hold_job
from streambank.repository.holds import Holds
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.storage import open_store, service_name
from streambank.storage.store import Opener
from streambank.work.executor import DEFAULT_PACE, Pace

REFRESHED = "refreshed"
"""The event of a copy that was made, or made again, among its own records."""
FAILED = "refresh-failed"
"""The event of a refresh that failed, likewise."""
_OF_THE_LEASE = ("lease-held", "lease-in-doubt")


@dataclass
class RefreshRequest(RefreshOptions):
    """What a refresh of a copy of a live job is asked for.

    Attributes:
        kafka: How Kafka is reached; as the job declares when left out.
    """

    job: Job
    copy: str
    kafka: Brokers | None = None
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    opener: Opener = open_store


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A savepoint, where it is, where it goes, and what there is to read after it.

    `sources` is None for a copy of the state alone, which reads nothing.
    """

    repository: Repository
    manifest: Manifest
    generation: Generation
    sources: Sources | None

    def describe(self, query: str, choice: SourceChoice) -> QueryRefresh:
        manifest, now = self.manifest, utc_now()
        asked = self.sources
        sources = () if asked is None else tuple(asked.to_dicts())
        replays = () if asked is None else tuple(replays_of(asked, manifest))
        effect = source_effect(sources, accepted=choice == "accept")
        return QueryRefresh(
            query=query,
            savepoint=manifest.savepoint,
            batch=manifest.batch,
            taken_at=manifest.taken_at,
            age_s=max(0.0, (now - manifest.taken_at).total_seconds()),
            repository=self.repository.store.uri,
            generation=self.generation.number,
            location=self.generation.location,
            outputs=self.generation.new_sinks,
            files=len(manifest.files),
            bytes=sum(entry.size_bytes for entry in manifest.files),
            sources=sources,
            source_effect=effect,
            replayable_until=min((one.until for one in replays if one.until is not None), default=None),
            replayable_effect=replayable_effect(replays, now, effect),
        )


def plan_refresh(request: RefreshRequest, *, pace: Pace = DEFAULT_PACE) -> RefreshReport:
    """What `refresh` would do with the same request. Writes nothing.

    What speaks against it is in `refusals`, for a person to decide; a savepoint that does not exist or is
    damaged, and a call that is wrong in itself, are raised.

    Raises:
        InputError, NotFoundError, IntegrityError, FormatError, StorageError: As `refresh`.
    """
    work = _Refresh(request, pace=pace)
    work.check_apart()
    chosen = work.choose(record=False)
    refusals: list[StreambankError] = [*work.of_another_job(), *work.refusals(chosen)]
    view = work.records.lease.view()
    doubt = work.records.lease.doubt(view)
    if view is not None and not view.free:
        refusals.insert(0, work.in_use(work.records.lease.refusal(view)))
    elif doubt is not None:
        refusals.insert(0, work.in_use(doubt))
    described = tuple(one.describe(name, work.choice) for name, one in chosen.items())
    return work.report(described, dry_run=True, refusals=tuple(refusals))


def refresh(request: RefreshRequest, *, pace: Pace = DEFAULT_PACE) -> RefreshReport:
    """Make a copy of a job's state, or make it again from a newer savepoint.

    Raises:
        InputError: The copy would not lie apart from the live job (code `copy-not-apart`), or the reference
            is of one query (`names-one-query`).
        NotFoundError: There is no such copy (`no-such-copy`), or no such savepoint, or none that verifies.
        IntegrityError: The savepoint is damaged.
        RefusedError: A driver runs on the copy, or may (`copy-in-use`); an output of the job has
            no other place on it (`sink-not-redirected`), or no saved log to go on from (`sink-not-saved`); a
            source has not all of the input any more (`source-would-lose-records`, `source-would-lose-files`,
            `source-cannot-repeat`), or it cannot be found out (`source-not-known`); the copy began in
            another checkpoint than the declared one (`checkpoint-changed`); or the marker there is that of
            another job (`checkpoint-of-another-job`).
        ConflictError: Another refresh of the copy is under way (`operation-in-progress`), or came first
            (`generation-moved`).
        StorageError: The environment failed. The copy is as it was, or as the report would say.
    """
    work = _Refresh(request, pace=pace)
    work.check_apart()  # nothing is written before, not even that it failed
    try:
        return work.run()
    except StreambankError as error:
        with contextlib.suppress(StreambankError):
            work.leave(work.records, FAILED, copy=request.copy, code=error.code, error=error.message)
        raise


class _Refresh(Procedure[RefreshRequest]):
    def __init__(self, request: RefreshRequest, *, pace: Pace) -> None:
        super().__init__(request, pace=pace)
        self.copy = request.job.as_copy(request.copy)
        assert self.copy.copy is not None
        self.policy = self.copy.copy
        self.live = self.job.records()
        self.records = self.copy.records()
        self.source = request.repository or self.policy.repository or self.job.repository
        self.choice = check_choice(request.source or self.policy.source, "source", SOURCE_CHOICES)
        self.brokers = request.kafka or Brokers(self.job.kafka)

    @property
    def called(self) -> str:
        """The job on the copy, as commands name it."""
        return f"{self.job.name}{SEPARATOR}{self.policy.name}"

    def run(self) -> RefreshReport:
        with self._holding() as held, ExitStack() as stack:
            self._check_places()
            for foreign in self.of_another_job():
                raise foreign
            for name, base in self.copy.queries.items():
                self.records.generations(name).ensure_first(base, by=self.request.by)
            seen = last_refresh(self.records)
            settle_refresh(self.records, operation=held.operation)
            removed = self._remove(held)
            chosen = self.choose(record=True)
            for refusal in self.refusals(chosen):
                raise refusal
            for one in chosen.values():
                holds = Holds(one.repository, "fork", self.request.by)
                stack.enter_context(holds.held(one.manifest.job, one.manifest.savepoint))
                self.warnings += holds.warnings
            described = []
            with self._begun(chosen, held):
                for name, one in chosen.items():
                    held.check()
                    described.append(one.describe(name, self.choice).made(self._fill(one)))
                self._commit(chosen, held, seen)
            self._follow(chosen, held)
            removed += self._remove(held)
            named = ", ".join(one.savepoint for one in described)
            seconds = round(self.seconds, 1)
            self.leave(self.records, REFRESHED, copy=self.policy.name, savepoint=named, seconds=seconds)
        return self.report(tuple(described), removed=tuple(removed))

    def report(
        self,
        queries: tuple[QueryRefresh, ...],
        *,
        dry_run: bool = False,
        refusals: tuple[StreambankError, ...] = (),
        removed: tuple[str, ...] = (),
    ) -> RefreshReport:
        return RefreshReport(
            job=self.job.name,
            copy=self.policy.name,
            runs_as=self.called,
            state_only=self.policy.state_only,
            queries=queries,
            dry_run=dry_run,
            refusals=refusals,
            removed=removed,
            warnings=tuple(dict.fromkeys(self.warnings)),
            seconds=self.seconds,
            by=self.request.by,
            why=self.request.why,
        )

    # What is asked before anything is written.

    def check_apart(self) -> None:
        """Make sure that the copy lies apart from everything live."""
        check_apart(self.job, self.live, self.copy, self._repository)

    @property
    def _repository(self) -> str:
        return self.job.repository if self.source == NEAREST else self.source

    def _check_places(self) -> None:
        """Make sure that the copy began where it is declared now.

        Raises:
            RefusedError: It began elsewhere (code `checkpoint-changed`).
        """
        for name, base in self.copy.queries.items():
            current = self.records.generation(name)
            if current is not None and service_name(current.base) != service_name(base):
                raise RefusedError(
                    f"The copy {self.policy.name} of job {self.job.name} declares the checkpoint {base}, but "
                    f"query {name} of it began in {current.base}.",
                    code="checkpoint-changed",
                    hint="Declare the old checkpoint again, or the new one as a copy of another name with "
                    "other records (`control`).",
                )

    def of_another_job(self) -> Iterator[RefusedError]:
        """Why the places of the copy are not its own: the markers there.

        The copy's own marker speaks against nothing: a copy whose records are lost is made again.
        """
        for name, base in self.copy.queries.items():
            refusal = held_elsewhere(declared_query(self.copy, name, self.records))
            if refusal is not None:
                yield RefusedError(
                    refusal.message,
                    code=refusal.code,
                    hint=f"Declare another checkpoint in [jobs.{self.job.name}.copies.{self.policy.name}]. "
                    f"If that job is gone for good, remove its marker {marker_location(base)}.",
                )

    def choose(self, *, record: bool) -> dict[str, _Chosen]:
        """A savepoint of each query, and the generation of the copy that it becomes."""
        self._check_places()
        if self.source == NEAREST:
            target = next(iter(self.copy.queries.values()))
            repository, nearest = from_place(
                self.job,
                NEAREST,
                self.request.savepoint,
                control=self.live,
                target=target,
                record=record,
                by=self.request.by,
                pace=self.pace,
            )
            assert nearest is not None
            passed = [passed for one in nearest.values() for passed in one.passed_over]
            self.warnings += [f"{one.location} was passed over: {one.why}" for one in passed]
            manifests = {name: one.manifest for name, one in nearest.items()}
        else:
            repository = self.job.open_place(self.source)
            found = choose_together(
                self.job,
                repository,
                self.request.savepoint,
                control=self.live,
                record=record,
                by=self.request.by,
                pace=self.pace,
            ).queries
            manifests = {name: one.manifest for name, one in found.items()}
        return self._placed({name: (repository, manifest) for name, manifest in manifests.items()})

    def _placed(self, found: Mapping[str, tuple[Repository, Manifest]]) -> dict[str, _Chosen]:
        """All queries get the same number, so that the directories show which refresh made them."""
        outputs = {name: self._outputs(name, manifest) for name, (_, manifest) in found.items()}
        sources = {name: self._sources(name, *place) for name, place in found.items()}
        # No directory that an earlier refresh has named is used again, whether it was filled or not.
        named = (location for _, directories in begun_refreshes(self.records) for location in directories)
        highest = max(map(number_of, named), default=0)
        while True:
            proposed = {
                name: self.records.generations(name).propose(
                    taken=lambda _: False, base=self.copy.queries[name], above=highest
                )
                for name in found
            }
            highest = max(one.number for one in proposed.values())
            chosen = {
                name: self._chosen(found[name], proposed[name], outputs[name], sources[name])
                for name in found
            }
            if any(one.number != highest for one in proposed.values()):
                highest -= 1
            elif not any(is_taken(one, self.records) for one in _directories(chosen)):
                break
        return chosen

    def _chosen(
        self,
        found: tuple[Repository, Manifest],
        proposed: Generation,
        outputs: Mapping[str, str],
        sources: Sources | None,
    ) -> _Chosen:
        repository, manifest = found
        filled = replace(
            proposed,
            from_savepoint=manifest.savepoint,
            by=dict(self.request.by),
            new_sinks={old: f"{new}.g{proposed.number:04d}" for old, new in outputs.items()},
        )
        return _Chosen(repository, manifest, filled, sources)

    def _sources(self, query: str, repository: Repository, manifest: Manifest) -> Sources | None:
        """What the sources have of what the application on the copy would read next."""
        if self.policy.state_only:
            return None
        live = self._live_checkpoint(query, manifest)
        return look_at_sources(repository, manifest, self.brokers, live, application=self.job.application)

    def _live_checkpoint(self, query: str, manifest: Manifest) -> str:
        """Where the live query has gone on after a savepoint."""
        current = self.live.generation(query)
        return manifest.checkpoint if current is None else current.location

    def _outputs(self, query: str, manifest: Manifest) -> dict[str, str]:
        """Which of the declared outputs are those of a query; all where nothing says where it writes."""
        written = list(outputs_of(manifest, self.live.query_facts(query) or {}))
        if not written and not self.policy.state_only:
            self.warnings.append(
                f"Neither the savepoint nor the job's records say where query {query} writes. If it is not "
                "to one of the declared outputs, it is not started on the copy."
            )
            return dict(self.policy.outputs)
        return {
            old: new
            for old, new in self.policy.outputs.items()
            if any(place_for({old: new}, output) is not None for output in written)
        }

    def refusals(self, chosen: Mapping[str, _Chosen]) -> Iterator[StreambankError]:
        """What speaks against it."""
        for name, one in chosen.items():
            facts = self.live.query_facts(name) or {}
            yield from against(self.copy, name, outputs_of(one.manifest, facts), one.manifest)
            if one.sources is not None:
                yield from one.sources.refusals(self.choice)
                self.warnings += one.sources.warnings(self.choice)

    # What is written.

    @contextmanager
    def _holding(self) -> Iterator[Held]:
        with ExitStack() as stack:
            try:
                held = stack.enter_context(hold_job(self.records, by=self.request.by))
            except RefusedError as error:
                raise self.in_use(error) from None
            yield held

    def in_use(self, error: RefusedError) -> RefusedError:
        """The refusal of a lease that is held, with what to do about a copy."""
        if error.code not in _OF_THE_LEASE:
            return error
        return RefusedError(
            f"The copy {self.policy.name} of job {self.job.name} is in use. {error.message}",
            code="copy-in-use",
            hint=f"Stop the job on the copy first: `streambank job stop {self.called}`.",
        )

    def _fill(self, one: _Chosen) -> str:
        repository, manifest, generation = one.repository, one.manifest, one.generation
        target = self.request.opener(generation.location)
        outputs = {
            path: place
            for path in saved_logs(manifest)
            if (place := place_for(generation.new_sinks, Output(FILES, path))) is not None
        }
        return lay_out_copy(
            repository, manifest, target, outputs, by=self.request.by, pace=self.pace
        ).query_id

    @contextmanager
    def _begun(self, chosen: Mapping[str, _Chosen], held: Held) -> Iterator[None]:
        """Leave behind which directories are filled; not any longer where an error has left none of them."""
        directories = list(_directories(chosen))
        number = begin_refresh(self.records, directories, by=self.request.by)
        try:
            for name, one in chosen.items():
                for location in one.generation.places():
                    claim(location, name, one.generation, self.records)
            yield
        except StreambankError:
            with contextlib.suppress(StreambankError):
                held.check()
                own = [one for one in directories if is_claimed(one, self.records)]
                if not any(any(open_store(one).list()) for one in own):
                    for location in own:
                        release(location)
                    forget_refreshes(self.records, [number])
            raise

    def _commit(self, chosen: Mapping[str, _Chosen], held: Held, seen: int) -> None:
        for name, one in chosen.items():
            if one.sources is not None:
                live = self._live_checkpoint(name, one.manifest)
                check_still_there(one.repository, one.manifest, self.brokers, self.choice, live)
        held.check()
        queries = {
            name: CopiedQuery(
                one.generation, one.manifest.savepoint, one.manifest.batch, one.manifest.taken_at
            )
            for name, one in chosen.items()
        }
        details = {"by": dict(self.request.by), "why": self.request.why}
        commit_refresh(self.records, queries, details, seen=seen)

    def _follow(self, chosen: Mapping[str, _Chosen], held: Held) -> None:
        settle_refresh(self.records, operation=held.operation)
        for name, one in chosen.items():
            why = renew_marker(
                self.copy.queries[name],
                job=self.copy.name,
                query=name,
                generation=one.generation,
                control=self.records,
                by=self.request.by,
            )
            if why is not None:
                self.warnings.append(
                    f"The marker beside {self.copy.queries[name]} could not be written: {why}"
                )

    def _remove(self, held: Held) -> list[str]:
        def check(location: str) -> None:
            held.check()
            check_removable(self.job, self.live, location, self._repository)

        removed, failed = remove_old(
            self.copy, self.records, held.check, check_removable=check, by=self.request.by
        )
        self.warnings += failed
        return removed


def _directories(chosen: Mapping[str, _Chosen]) -> Iterator[str]:
    for one in chosen.values():
        yield from one.generation.places()
