"""The verbs on a whole repository: verify a sample of it, replicate, expire, sweep.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streambank.core.errors import InputError, StreambankError
from streambank.core.names import QueryRef
from streambank.core.verb_options import ExpireOptions, SweepOptions
from streambank.core.zones import UTC_NAME
from streambank.declaration.savepoints import DEFAULT_SHARE
from streambank.retention.policy import Policy, policy_of
from streambank.storage import open_store
from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.verbs import CALLER, Asked, asking, connected

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.replicas.repair import RepairReport
    from streambank.replicas.replicate import ReplicaReport
    from streambank.retention.expire import ExpireReport, OthersOf
    from streambank.retention.sweep import SweepReport
    from streambank.savepoint.sampling import SampleReport
    from streambank.sinks.tags import TagReport
    from streambank.work.executor import Executor


@dataclass(kw_only=True)
class AskedExpire(ExpireOptions, Asked):
    """How an expire is asked for."""


@dataclass(kw_only=True)
class AskedSweep(SweepOptions, Asked):
    """How a sweep is asked for."""


@dataclass(frozen=True, slots=True)
class RepositoryVerbs:
    """What is done with the savepoints that a job has already: `hook.repository`.

    The first argument of a verb is `job`, which means its queries too, or `job/query`.
    """

    declared: DeclaredJobs

    @connected
    def verify(self, ref: str, share: str = DEFAULT_SHARE, *, by: Mapping[str, str] = CALLER) -> SampleReport:
        """Look at all savepoints of a job, and hash the next share of their bytes.

        Args:
            share: Such as `10%`.

        Raises:
            InputError: It is no share (code `bad-share`).
        """
        from streambank.repository.coverage import parse_share
        from streambank.savepoint.sampling import verify_sample

        return verify_sample(self.declared.open_repository(ref), parse_share(share), job=ref, by=by)

    @connected
    def replicate(
        self,
        ref: str,
        to: Sequence[str] = (),
        *,
        parallel: int | None = None,
        max_rate: str | None = None,
        by: Mapping[str, str] = CALLER,
        executor: Executor | None = None,
    ) -> list[ReplicaReport]:
        """Bring all savepoints of a job to its replicas; one that fails keeps no other from what it lacks.

        Args:
            to: The replicas; none for those that are declared.
            parallel: How many packs or large objects are moved at once; None for as many as is best.
            max_rate: How fast they may be read, such as `50MB/s`; None for no limit.
            executor: Who moves them; threads of this process where nobody is named.

        Raises:
            InputError: Nobody names a replica (code `no-replica-named`), or the rate is none (`bad-rate`).
        """
        from streambank.replicas.replicate import newest_first, replicate_to
        from streambank.work.executor import Pace
        from streambank.work.pace import parse_rate

        rate = parse_rate(max_rate) if max_rate is not None else None
        job = self.declared.get(ref)
        locations = tuple(to) or (job.replicate.to if job is not None else ())
        if not locations:
            raise InputError(
                f"No replica is given for the savepoints of {ref}.",
                code="no-replica-named",
                hint=f"Declare [jobs.{QueryRef.parse(ref).job}.replicate], or give the task to=.",
            )
        source = self.declared.open_repository(ref)
        which = newest_first(source, ref)
        return [
            replicate_to(
                source,
                open_store,
                location,
                which,
                pace=Pace(parallel=parallel, max_bytes_per_s=rate, executor=executor),
                by=by,
                lock=job.replicate.lock if job is not None else None,
            )
            for location in locations
        ]

    @asking(AskedExpire)
    def expire(self, ref: str, asked: AskedExpire) -> ExpireReport:
        """Take savepoints that a policy does not keep from the list; each query of a job is judged by itself.

        Without rules those count that the job declares.

        Raises:
            InputError: There is no policy, or an empty one (code `empty-policy`), `min_verified` or
                `time_zone` stands without a rule (`bad-option`), a rule is negative (`bad-policy`), or there
                is no such time zone (`bad-time-zone`).
        """
        from streambank.retention.expire import expire

        job = self.declared.get(ref)
        policy = _policy(asked, job) or (job.retention if job is not None else None)
        if policy is None:
            raise InputError(
                f"No retention policy is given for the savepoints of {ref}.",
                code="empty-policy",
                hint=f"Declare [jobs.{QueryRef.parse(ref).job}.retention], or give the task rules: "
                "keep_last=10.",
            )
        repository = self.declared.open_repository(ref)
        return expire(
            repository, policy, job=ref, dry_run=asked.plan_only, by=asked.by, others=_others_of(job)
        )

    @connected
    def settle_tags(self, ref: str) -> list[TagReport]:
        """Remove the tags in Iceberg tables whose savepoints are gone from the repository and each replica.

        Args:
            ref: `job` or `job/query`; the tags of all its declared sinks are looked at.

        Returns:
            Of each table in which something was done, or could not be; never raises for a table.
        """
        job = self.declared.get(ref)
        if job is None or not job.sinks:
            return []
        return job.settle_tags(self.declared.open_repository(ref))

    @connected
    def expire_replicas(
        self, ref: str, *, plan_only: bool = False, by: Mapping[str, str] = CALLER
    ) -> list[tuple[str, ExpireReport | StreambankError]]:
        """Take savepoints of a job from the lists of its declared replicas.

        What the repository lists stays in each of them, and what the declared `replicate.retention` keeps. A
        replica that fails keeps no other from its turn. Each query of a job is judged by itself.

        Returns:
            Of each replica its location, and what came of it or why nothing did.

        Raises:
            InputError: No replica, or no retention of replicas is declared (codes `no-replica-named`,
                `empty-policy`).
        """
        from streambank.repository.repository import Repository
        from streambank.retention.expire import expire

        job, name = self.declared.get(ref), QueryRef.parse(ref).job
        if job is None or not job.replicate.to:
            raise InputError(
                f"No replica of the savepoints of {ref} is declared.",
                code="no-replica-named",
                hint=f"Declare [jobs.{name}.replicate].",
            )
        policy = job.replicate.retention
        if policy is None:
            raise InputError(
                f"No retention policy is declared for the replicas of the savepoints of {ref}.",
                code="empty-policy",
                hint=f"Declare [jobs.{name}.replicate.retention] with rules such as keep_last = 10.",
            )
        source = self.declared.open_repository(ref)
        done: list[tuple[str, ExpireReport | StreambankError]] = []
        for location in job.replicate.to:
            try:
                replica = Repository.open(open_store(location))
                report = expire(
                    replica, policy, job=ref, dry_run=plan_only, by=by, source=source, others=_others_of(job)
                )
            except StreambankError as error:
                done.append((location, error))
            else:
                done.append((location, report))
        return done

    @connected
    def repair(
        self,
        ref: str,
        savepoint: str | None = None,
        sources: Sequence[str] = (),
        *,
        plan_only: bool = False,
        by: Mapping[str, str] = CALLER,
        executor: Executor | None = None,
    ) -> RepairReport:
        """Copy what is damaged or missing in savepoints of a job from replicas that have it undamaged.

        Args:
            savepoint: Its id, the beginning of one, or `latest`; None for all of the job.
            sources: Replicas, the preferred one first; none for those that the job declares.
            plan_only: Read all the same, and write nothing.
            executor: Who reads and hashes; threads of this process where nobody is named.

        Raises:
            InputError: No replica is named or declared (code `no-replica-named`).
        """
        from streambank.replicas.header_repair import open_for_repair
        from streambank.replicas.repair import repair
        from streambank.repository.catalog import listed
        from streambank.repository.references import find, utc_of
        from streambank.repository.repository import Repository
        from streambank.work.executor import Pace

        job, name = self.declared.get(ref), QueryRef.parse(ref).job
        named = tuple(sources) or (job.replicate.to if job is not None else ())
        if not named:
            raise InputError(
                f"No replica of the savepoints of {ref} is declared.",
                code="no-replica-named",
                hint=f"Declare [jobs.{name}.replicate].",
            )
        store = self.declared.repository_store(ref)
        lock = job.savepoint.lock if job is not None else None
        opened, header_error = open_for_repair(store, dry_run=plan_only, lock=lock)
        replicas = [Repository.open(open_store(location)) for location in named]
        zone_of = utc_of if job is None else job.zone_of
        which = (
            [find(store, savepoint, ref, zone_of=zone_of)] if savepoint is not None else listed(store, ref)
        )
        pace = Pace(executor=executor)
        return repair(opened, replicas, which, header_error=header_error, dry_run=plan_only, pace=pace, by=by)

    @connected
    def behind(self) -> list[tuple[str, str, int]]:
        """How far the replicas of the declared jobs are behind the repository. Only reads.

        Returns:
            Of each replica and each job (or query, `job/query`) that declares it: its location, the job, and
            how many savepoints it lacks.

        Raises:
            StreambankError: The jobs file is wrong, or a place cannot be read (code of its own error).
        """
        from streambank.core.units import utc_now
        from streambank.replicas.status import status

        declared = self.declared.load()
        wanted = {
            place: {job.name for job in declared.jobs.values() if place in job.replicate.to}
            for job in declared.jobs.values()
            for place in job.replicate.to
        }
        found = status(open_store, declared.repository, list(wanted), utc_now())
        for place in found.places:
            if place.error is not None:
                raise place.error
        return [
            (place.location, job.job, job.lacking)
            for place, jobs in zip(found.places[1:], wanted.values(), strict=True)
            for job in place.jobs
            if QueryRef.parse(job.job).job in jobs
        ]

    @asking(AskedSweep)
    def sweep(self, ref: str, asked: AskedSweep) -> SweepReport:
        """Sweep the repository of a job, which means what other jobs left there too."""
        from streambank.retention.sweep import sweep

        repository = self.declared.open_repository(ref)
        return sweep(repository, grace_s=asked.grace_s, dry_run=asked.plan_only, by=asked.by)


def _policy(options: ExpireOptions, job: Job | None) -> Policy | None:
    """The rules that are given; None for none."""
    policy = policy_of(options, (None if job is None else job.time_zone) or UTC_NAME)
    for alone in ("min_verified", "time_zone"):
        if policy is None and getattr(options, alone) is not None:
            raise InputError(
                f"{alone} needs a retention rule beside it.",
                code="bad-option",
                hint=f"Give a rule such as keep_last, or declare {alone} in the jobs file.",
            )
    return policy


def _others_of(job: Job | None) -> OthersOf:
    """Which savepoints are of other lines than the job's; none where it is not declared."""
    from streambank.sites.forks import others_among

    control = None if job is None else job.records()
    return lambda name, saved: others_among(control, name, saved)
