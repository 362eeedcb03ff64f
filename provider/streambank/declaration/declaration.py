"""Declared jobs, and the file that declares them (docs/reference/jobs.md), as load.py has read it."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING

from streambank.control.control import JobControl
from streambank.control.place import at_declared
from streambank.core.errors import InputError, NotFoundError, RefusedError
from streambank.core.names import MAIN, PRIMARY, SEPARATOR, SITES, STANDBY, QueryRef, other_of
from streambank.core.signing import VARIABLE, signing_keys
from streambank.core.zones import UTC_NAME, time_zone
from streambank.declaration.airflow import AirflowPolicy
from streambank.declaration.drill import DrillPolicy
from streambank.declaration.health import HealthPolicy
from streambank.declaration.launch import LOCAL_MASTER, LaunchPolicy
from streambank.declaration.maintenance import GenerationsPolicy, MaintenancePolicy
from streambank.declaration.notify import Notify
from streambank.declaration.places.copies import CopyPolicy, copy_name
from streambank.declaration.places.standby import Standby
from streambank.declaration.savepoints import (
    Limits,
    ReplicatePolicy,
    RestorePolicy,
    SavepointPolicy,
    StartPolicy,
    StopPolicy,
    UpgradePolicy,
)
from streambank.declaration.sla import SlaPolicy, without_copy_age
from streambank.declaration.state import ChangePolicies, CompactPolicy, HotKeysPolicy, StatePolicy
from streambank.kafka.settings import KafkaConnection
from streambank.repository.repository import Repository
from streambank.retention.policy import Policy
from streambank.sinks.declared import DeclaredSink, settle_declared_tags
from streambank.storage.locations import open_store

if TYPE_CHECKING:
    from streambank.checkpoint.replay import Replay
    from streambank.sinks.redirect import Redirect
    from streambank.sinks.tags import TagReport


@dataclass(frozen=True, slots=True)
class Job:
    """One declared job.

    Attributes:
        spark_names: What the application calls a query, where that is another name, by name.
        checkpoint: The declared checkpoint, a URI; generation 1 of the only query.
        queries: Declared checkpoint of each query, by name; `{"main": checkpoint}` where there is only one.
        control: URI of the control location: this job's records are at `<control>/<name>`; None where none is
            declared, and they are beside the repository (control/place.py).
        named_python: The same where it is declared; None for the one that Streambank itself runs in.
        spark_home: The distribution of Spark that it runs on; None for the PySpark of that interpreter.
        named_spark_home: The same where it is declared, and not only the connection says so.
        env: Names of environment variables that the driver gets besides the usual ones.
        time_zone: By whose calendar and clocks its schedules, blackout windows and retention are, such as
            `Europe/Berlin`; None for UTC, and for schedules Airflow's own default.
        savepoint: See `SavepointPolicy`; so for `restore`, `upgrade`, `stop`, `start` and `limits`.
        sinks: What its queries write to, as far as Spark does not say it itself.
        state: By which Spark its state is worked on.
        changes: What of its state is made or changed by forms.
        hot_keys: How the keys with the most traffic are sampled; None where they are not.
        primary: The job at its primary, for one that is at its standby (`at_site`). Not declared.
        copy: Which of them this is, for the job as it runs on one (`as_copy`). Not declared.
        original: The job that it is a copy of. Not declared either.
        generations: Which directories are removed that work on it has left; None where that is not declared.
        signed: Whether its savepoints and records have to be signed: nothing reads them without a key.
        redirects: Where its queries write instead of where the application says, by name. Not declared: a
            copy of a job has it, such as that of a drill.
        replays: Batches of the live job that a copy executes again, by query. Not declared either.
        source: The file that declares it, with the `line` of its table; empty where that is no file.
    """

    name: str
    application: str
    checkpoint: str
    queries: Mapping[str, str]
    repository: str
    control: str | None = None
    spark_names: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    python: str = sys.executable
    named_python: str | None = None
    spark_home: str | None = None
    named_spark_home: str | None = None
    master: str = "local[*]"
    spark: Mapping[str, str] = field(default_factory=dict)
    env: tuple[str, ...] = ()
    working_dir: str = "."
    description: str = ""
    tags: tuple[str, ...] = ()
    time_zone: str | None = None
    savepoint: SavepointPolicy = field(default_factory=SavepointPolicy)
    restore: RestorePolicy = field(default_factory=RestorePolicy)
    upgrade: UpgradePolicy = field(default_factory=UpgradePolicy)
    stop: StopPolicy = field(default_factory=StopPolicy)
    start: StartPolicy = field(default_factory=StartPolicy)
    limits: Limits = field(default_factory=Limits)
    health: HealthPolicy = field(default_factory=HealthPolicy)
    retention: Policy | None = None
    replicate: ReplicatePolicy = field(default_factory=ReplicatePolicy)
    sla: SlaPolicy = field(default_factory=SlaPolicy)
    kafka: KafkaConnection = field(default_factory=KafkaConnection)
    sinks: tuple[DeclaredSink, ...] = ()
    state: StatePolicy = field(default_factory=StatePolicy)
    compact: CompactPolicy = field(default_factory=CompactPolicy)
    changes: ChangePolicies = field(default_factory=ChangePolicies)
    hot_keys: HotKeysPolicy | None = None
    drill: DrillPolicy = field(default_factory=DrillPolicy)
    standby: Standby | None = None
    primary: Job | None = None
    copies: Mapping[str, CopyPolicy] = field(default_factory=dict)
    copy: CopyPolicy | None = None
    original: Job | None = None
    generations: GenerationsPolicy | None = None
    airflow: AirflowPolicy = field(default_factory=AirflowPolicy)
    launch: LaunchPolicy = field(default_factory=LaunchPolicy)
    notify: tuple[Notify, ...] = ()
    signed: bool = False
    redirects: Mapping[str, Redirect] = field(default_factory=dict)
    replays: Mapping[str, Replay] = field(default_factory=dict)
    source: str = ""
    line: int = 0

    @property
    def declared_in(self) -> str:
        """Where it is declared, for people."""
        return self.source or "its declaration"

    @property
    def query_names(self) -> tuple[str | None, ...]:
        """Names of its queries; `(None,)` where there is only one."""
        return tuple(None if name == MAIN else name for name in self.queries)

    def savepoint_name(self, query: str | None) -> str:
        """How the repository calls a query, `main` or None for the only one: `job`, or `job/query`."""
        return str(QueryRef.of(self.name, query))

    def queries_named(self, query: str | None) -> tuple[str, ...]:
        """The query of this name; all of them for None.

        Raises:
            InputError: There is none of this name (code `no-such-query`).
        """
        if query is not None and query not in self.queries:
            raise InputError(
                f"Job {self.name} has no query {query!r}.",
                code="no-such-query",
                hint=f"It has: {', '.join(self.queries)}.",
            )
        return tuple(self.queries) if query is None else (query,)

    def only_query(self, query: str | None) -> str:
        """The query of this name; the only one for None.

        Raises:
            InputError: The job has several and none is named, or none of this name (code `which-query`).
        """
        if (query or MAIN) not in self.queries:
            raise InputError(
                f"No query of job {self.name} is named, or one that the job does not have.",
                code="which-query",
                hint=f"Name one: {', '.join(self.queries)}.",
            )
        return query or MAIN

    def work_location(self, query: str | None) -> str:
        """Location in which a query's state is staged for Spark: beside its checkpoint by default."""
        return self.state.work or f"{self.queries.get(query or MAIN, self.checkpoint)}.work"

    @property
    def site(self) -> str:
        """At which of its sites it is; `primary` for a job that has only one."""
        return PRIMARY if self.primary is None else STANDBY

    @property
    def other_site(self) -> Job | None:
        """The job at its other site; None where it has only one."""
        if (self.primary or self).standby is None:
            return None
        return self.at_site(other_of(self.site))

    def at_site(self, site: str) -> Job:
        """The job as it is at one of its sites: the same name, with its own places and its own launch.

        Raises:
            InputError: It has no standby (code `no-standby`), or no such site (`no-such-site`).
        """
        primary = self.primary or self
        if site not in SITES:
            raise InputError(
                f"{site!r} is not a site or a copy of job {self.name}.",
                code="no-such-site",
                hint=f"One of: {', '.join((*SITES, *primary.copies))}.",
            )
        standby = primary.standby
        if standby is None:
            raise InputError(
                f"Job {self.name} declares no standby.",
                code="no-standby",
                hint=f"Declare one: [jobs.{self.name}.standby] in {self.declared_in}.",
            )
        if site == PRIMARY:
            return primary
        launch, place = standby.launch or primary.launch, standby.checkpoint
        others = (one for one in primary.replicate.to if one != standby.repository)
        return replace(
            primary,
            primary=primary,
            checkpoint=place,
            queries={name: place if name == MAIN else f"{place}/{name}" for name in primary.queries},
            repository=standby.repository,
            control=standby.control,
            application=standby.application or primary.application,
            args=primary.args if standby.args is None else standby.args,
            env=primary.env if standby.env is None else standby.env,
            python=standby.python or primary.python,
            spark_home=standby.spark_home or primary.spark_home,
            launch=launch,
            master=primary.master if standby.launch is None else (launch.master or LOCAL_MASTER),
            spark={**primary.spark, **standby.spark},
            kafka=standby.kafka or primary.kafka,
            sinks=primary.sinks if standby.sinks is None else standby.sinks,
            replicate=replace(primary.replicate, to=(primary.repository, *others)),
            drill=replace(primary.drill, repository=None, scratch=None),
            state=replace(primary.state, work=None),
        )

    def as_copy(self, name: str) -> Job:
        """The job as it runs on a copy of its state: another job, with nothing of this one within its reach.

        Raises:
            NotFoundError: There is no such copy (code `no-such-copy`).
        """
        if name not in self.copies:
            raise NotFoundError(
                f"Job {self.name} declares no copy {name!r}.",
                code="no-such-copy",
                hint=f"Declared in [jobs.{self.name}.copies]: {', '.join(self.copies) or 'none'}.",
            )
        copy = self.copies[name]
        return replace(
            self,
            # A cluster finds drivers by the name of their job, and must not take the live one for this.
            name=copy_name(self.name, name),
            checkpoint=copy.checkpoint,
            queries=copy.queries(self.queries),
            repository=copy.savepoints,
            control=copy.records,
            copies={},
            copy=copy,
            original=self,
            standby=None,
            primary=None,
            sinks=(),
            notify=(),
            sla=without_copy_age(self.sla),
            replicate=ReplicatePolicy(),
            drill=replace(self.drill, repository=None, scratch=None),
            state=replace(self.state, work=None),
            hot_keys=copy.hot_keys,
        )

    def records(self) -> JobControl:
        """The job's records, where they are; they know which site may change the job.

        Raises:
            ConflictError: They are in two places, or on the way to this one (code `records-twice`,
                `records-moving`).
            RefusedError: They were moved elsewhere (`records-moved`), or there is no key to verify them with
                (`signing-key-missing`).
            StorageError: Their place cannot be read.
        """
        self._require_key()
        if self.control is None:
            records = JobControl.of_repository(open_store(self.repository), self.name, guess=False)
        else:
            records = JobControl(at_declared(open_store(self.control).child(self.name), self.name), self.name)
        records.check_site = partial(_check_site, self, records)
        sites = [self] if self.other_site is None else [self, self.other_site]
        records.checkpoints = {name: [site.queries[name] for site in sites] for name in self.queries}
        return records

    def open_repository(self, *, create: bool = False, like: str | None = None) -> Repository:
        """The repository of its savepoints; see `Repository.open`.

        Raises:
            RefusedError: Savepoints have to be signed, and there is no key (code `signing-key-missing`).
            StreambankError: As `Repository.open`.
        """
        self._require_key()
        store = open_store(self.repository)
        opened = Repository.open(store, create=create, like=like, lock=self.savepoint.lock)
        opened.zone_of = self.zone_of
        return opened

    def open_place(self, location: str) -> Repository:
        """The repository, or a replica, that its savepoints are restored from.

        Raises:
            RefusedError: Savepoints have to be signed, and there is no key (code `signing-key-missing`).
            StreambankError: As `Repository.open`.
        """
        self._require_key()
        opened = Repository.open(open_store(location))
        opened.zone_of = self.zone_of
        return opened

    def zone_of(self, _: str = "") -> tuple[str, tzinfo]:
        """Its time zone, by which references to savepoints by time are read: the name, and itself."""
        name = self.time_zone or UTC_NAME
        return name, time_zone(name)

    def settle_tags(
        self, repository: Repository, *, ensure: Mapping[str, str] | None = None
    ) -> list[TagReport]:
        """Bring the tags of its savepoints in Iceberg tables up to date; see `settle_declared_tags`.

        Args:
            ensure: Ids of savepoints that were just listed, by `job` or `job/query`.
        """
        refs = {name: self.savepoint_name(name) for name in self.queries}
        return settle_declared_tags(self.sinks, refs, repository, self.replicate.to, ensure=ensure)

    def _require_key(self) -> None:
        if self.signed and not signing_keys():
            raise RefusedError(
                f"Job {self.name} has to be signed, and this installation has no key.",
                code="signing-key-missing",
                hint=f"Name the file with the keys in {VARIABLE}; {self.declared_in} says `signed`.",
            )


@dataclass(frozen=True, slots=True)
class BrokenJob:
    """A job whose declaration has a mistake.

    Attributes:
        job: The job, of which only the name is known, and who is alerted if that can be read.
    """

    error: InputError
    job: Job


@dataclass(frozen=True, slots=True)
class Declarations:
    """A whole jobs file, or what is given instead of one.

    Attributes:
        control: URI of the control location of jobs that declare none of their own; None for the default.
        broken: Jobs whose declaration has a mistake, by name: they are not among `jobs`.
    """

    path: str
    repository: str
    control: str | None
    jobs: Mapping[str, Job]
    maintenance: MaintenancePolicy | None = None
    broken: Mapping[str, BrokenJob] = field(default_factory=dict)

    def whole(self) -> Declarations:
        """Itself, for who needs all jobs of the file.

        Raises:
            InputError: A job has a mistake.
        """
        for one in self.broken.values():
            raise copy(one.error)  # each has the traceback of who asked
        return self

    def around(self, name: str) -> Declarations:
        """Itself, for who needs this job alone: a mistake in another one does not matter.

        Args:
            name: The job's name, also with `@` and a site or a copy, or with `/` and a query.

        Raises:
            InputError: The job has a mistake; or no such job is known, and one that has a mistake may be it.
        """
        name = name.partition("/")[0].partition(SEPARATOR)[0]
        if name in self.broken:
            raise copy(self.broken[name].error)
        return self if name in self.jobs else self.whole()

    def job(self, name: str, say: Callable[[str], object] = lambda words: None) -> Job:
        """A job by name; `NAME@standby` and `NAME@primary`: at one of its sites; `NAME@COPY`: on a copy.

        A job on a copy is found by the name of its drivers and savepoints, too: `NAME-COPY`. A copy is one of
        the job at its active site.

        Args:
            say: Hears of a site that was not reached for that.

        Raises:
            NotFoundError: It is not declared (code `no-such-job`).
            InputError: It has no such site (`no-standby`), and no such copy (`no-such-site`).
            StreambankError: The records of a site, which a copy needs, are damaged, moved or twice.
        """
        name, at, which = name.partition(SEPARATOR)
        if not at and name not in self.jobs and (named := self.copy_named(name)) is not None:
            (name, which), at = named, SEPARATOR
        if at:
            from streambank.sites.standing import at_active_site

            job = self.job(name)
            return at_active_site(job, say).as_copy(which) if which in job.copies else job.at_site(which)
        if name in self.broken:
            raise copy(self.broken[name].error)
        if name not in self.jobs:
            near = difflib.get_close_matches(name, self.jobs, 1)
            raise NotFoundError(
                f"{self.path} declares no job {name!r}.",
                code="no-such-job",
                hint=(f"Did you mean {near[0]}? " if near else "")
                + f"Declared: {', '.join(self.jobs) or 'none'}.",
            )
        return self.jobs[name]

    def copy_named(self, name: str) -> tuple[str, str] | None:
        """The job and the copy whose drivers and savepoints have this name; None where there are none."""
        names = ((job.name, copy) for job in self.jobs.values() for copy in job.copies)
        return next((one for one in names if copy_name(*one) == name), None)


def _check_site(job: Job, records: JobControl) -> tuple[str, ...]:
    """Loaded when an operation asks, since the modules of sites are not needed to declare jobs."""
    from streambank.sites.standing import check_active

    return check_active(job, records)
