"""Operators on the savepoints that a job has already: replicate them, expire them, sweep what none needs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import BaseOperator

from streambank.core.errors import StreambankError
from streambank.core.units import say_count
from streambank.core.verb_options import ExpireOptions, SweepOptions
from streambank_airflow.arguments import ExpireArguments, OfJob, SweepArguments, Templated, argument
from streambank_airflow.failures import airflow_failures, as_airflow
from streambank_airflow.hints import in_words
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID
from streambank_airflow.operators.base import (
    Declaration,
    FindsJobs,
    SparkWork,
    StreambankOperator,
    asked_by,
    flat,
    measured,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.replicas.replicate import ReplicaReport
    from streambank.retention.expire import ExpireReport
    from streambank.sinks.tags import TagReport

STATES = ("copied", "there", "refilled", "failed", "gone")
"""What can become of a savepoint in a replica."""
TALLIES = ("deleted", "condemned", "waiting", "kept", "held")
"""What a sweep counts in files and bytes."""


class RepositoryOperator(StreambankOperator):
    """An operator on the savepoints of a job.

    Args:
        only_if: Skip unless this is true; for a form's answer.
    """

    only_if: Templated[bool] = argument(True)

    def skip_unless_asked(self) -> None:
        """Skip the task where the form says so.

        Raises:
            AirflowSkipException: It does.
            InputError: It says neither yes nor no (code `bad-option`).
        """
        if not self.only_if:
            raise AirflowSkipException("This run does not include this step.")

    def tell(self, report: ExpireReport) -> None:
        """Log what an expire decided about each savepoint, and why."""
        for decision in report.decisions:
            dropped = "would be dropped" if report.dry_run else "dropped"
            self.log.info(
                "%s %s: %s: %s",
                decision.summary.job,
                decision.summary.savepoint,
                "kept" if decision.keep else dropped,
                "; ".join(f"{reason.rule}: {reason.why}" for reason in decision.reasons),
            )
        for warning in report.warnings:
            self.log.warning("%s", in_words(warning))

    def tell_tags(self, reports: Iterable[TagReport]) -> None:
        """Log what became of the tags of savepoints that are gone."""
        for report in reports:
            if report.removed:
                self.log.info("%s: removed the tags %s.", report.table, ", ".join(report.removed))
            for warning in report.warnings:
                self.log.warning("%s", in_words(warning))

    def raise_for(self, errors: Iterable[tuple[str, StreambankError]]) -> None:
        """Log what went wrong beside what went well, and fail the task if there was anything.

        Args:
            errors: What each is about, and what is wrong.

        Raises:
            AirflowException: A retry may heal some of it: what went well is not done again.
            AirflowFailException: Somebody has to see to all of it.
        """
        found = list(errors)
        for about, error in found:
            self.log.error("%s: %s", about, error.message)
        if found:
            first = min((error for _, error in found), key=lambda error: not error.retryable)
            raise as_airflow(first) from first


def unreadable(report: ExpireReport) -> Iterable[tuple[str, StreambankError]]:
    """Savepoints that an expire kept since their manifests cannot be read, and why those cannot."""
    for one in report.unreadable:
        if one.summary.error is not None:
            yield f"{one.summary.job} {one.summary.savepoint}", one.summary.error


class ReplicateSavepointsOperator(SparkWork, RepositoryOperator):
    """Brings all savepoints of a job to other repositories: what is missing there moves, hashed on the way.

    Each replica is served, whatever becomes of the others; then the task fails if one lacks something. A
    retry moves the rest.

    Args:
        to: The replicas, made where there is nothing yet; none for those that the job declares.
        parallel: How many packs or large objects are moved at once by this worker; none: the best.
        max_rate: How fast this worker may read them, such as `50MB/s`; None for no limit.

    Returns:
        `job`, `ok`, `replicas` (how many), `savepoints` (how many, over all replicas), and of these `copied`,
            `there`, `refilled`, `failed`, `gone`; `moved_bytes`, `service_bytes`, `there_bytes`, `seconds`.
    """

    operation = "replicate"
    alert_kinds = ("replica-failed",)

    to: Templated[Sequence[str]] = argument(())
    parallel: Templated[int | None] = argument(None)
    max_rate: Templated[str | None] = argument(None)

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Replicate; see the class."""
        with airflow_failures():
            self.skip_unless_asked()
            reports = self.hook.repository.replicate(
                self.job,
                self.to,
                parallel=self.parallel,
                max_rate=self.max_rate,
                by=asked_by(context),
                executor=self.machines,
            )
        for report in reports:
            self.log.info(
                "%s: %d savepoints checked, %d bytes moved.",
                report.location,
                len(report.savepoints),
                report.to_dict()["moved_bytes"],
            )
            for warning in report.warnings:
                self.log.warning("%s: %s", report.location, in_words(warning))
        self.raise_for(_replica_errors(reports))
        return self._result(reports)

    def _result(self, reports: Sequence[ReplicaReport]) -> dict[str, Any]:
        found = [report.to_dict() for report in reports]
        states: list[str] = [each.state for report in reports for each in report.savepoints]
        return {
            "job": self.job,
            "ok": all(report.ok for report in reports),
            "replicas": len(reports),
            "savepoints": len(states),
            **{state: states.count(state) for state in STATES},
            **{
                name: sum(each[name] for each in found)
                for name in ("moved_bytes", "service_bytes", "there_bytes")
            },
            "seconds": round(sum(report.seconds for report in reports), 3),
        }


def _replica_errors(reports: Sequence[ReplicaReport]) -> Iterable[tuple[str, StreambankError]]:
    for report in reports:
        if report.error is not None:
            yield report.location, report.error
        for each in report.savepoints:
            for file, error in each.errors:
                yield f"{report.location}, {each.savepoint}, {file}", error


class ExpireSavepointsOperator(RepositoryOperator, ExpireArguments):
    """Takes savepoints of a job that its retention does not keep from the list; `undelete` brings one back.

    Without rules those count that the job declares. Each query of a job is judged by itself. Pinned ones
    stay, and never fewer verified ones are left than `min_verified` says; but what is older than `max_age_s`
    goes. `min_verified` and `time_zone` go with rules.

    Returns:
        `job`, `dry_run`, `ok`, `kept`, `dropped`, and of these `overruled` (that age took though a rule
            would have kept them): numbers. The log has a reason for each savepoint.
    """

    operation = "expire"

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Expire; see the class."""
        with airflow_failures():
            self.skip_unless_asked()
            asked = self.values_of(ExpireOptions)
            report = self.hook.repository.expire(self.job, by=asked_by(context), **asked)
            tags = [] if report.dry_run else self.hook.repository.settle_tags(self.job)
        self.tell(report)
        self.tell_tags(tags)
        self.raise_for(unreadable(report))
        return {"job": self.job, **flat(report.to_dict())}


class ExpireReplicasOperator(RepositoryOperator):
    """Takes savepoints of a job from the lists of its declared replicas, by the declared rules of replicas.

    What the repository itself lists stays in every replica. Each replica is served, whatever becomes of the
    others; then the task fails if one could not be, and a retry does the rest.

    Args:
        plan_only: Change nothing; only say what would happen.

    Returns:
        `job`, `dry_run`, `ok`, `replicas`, and over all of them `kept`, `dropped`: numbers. The log has a
            reason for each savepoint.
    """

    operation = "expire_replicas"

    plan_only: Templated[bool] = argument(False)

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Expire in the replicas; see the class."""
        with airflow_failures():
            self.skip_unless_asked()
            dry_run = self.plan_only
            found = self.hook.repository.expire_replicas(self.job, plan_only=dry_run, by=asked_by(context))
            tags = [] if dry_run else self.hook.repository.settle_tags(self.job)
        self.tell_tags(tags)
        errors: list[tuple[str, StreambankError]] = []
        kept = dropped = 0
        for location, report in found:
            if isinstance(report, StreambankError):
                errors.append((location, report))
                continue
            self.log.info("In %s:", location)
            self.tell(report)
            errors += [(f"{location}, {about}", error) for about, error in unreadable(report)]
            kept += len(report.decisions) - len(report.dropped)
            dropped += len(report.dropped)
        self.raise_for(errors)
        result = {"job": self.job, "dry_run": dry_run, "ok": True, "replicas": len(found)}
        return {**result, "kept": kept, "dropped": dropped}


class SweepRepositoryOperator(RepositoryOperator, SweepArguments):
    """Deletes from the repository of a job what no savepoint of any job needs, a grace after condemning it.

    Returns:
        `job`, `dry_run`, `ok`, `grace_s`, `next_s`, `removed` (expired savepoints that can no more be brought
            back), and `deleted_files`, `deleted_bytes`, likewise `condemned_`, `waiting_`, `kept_`, `held_`,
            `leftover_` (of writes that were broken off).
    """

    operation = "sweep"

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Sweep; see the class."""
        with airflow_failures():
            self.skip_unless_asked()
            report = self.hook.repository.sweep(
                self.job, by=asked_by(context), **self.values_of(SweepOptions)
            )
        found = report.to_dict()
        counted = {f"{name}_{unit}": found[name][unit] for name in TALLIES for unit in ("files", "bytes")}
        result = {"job": self.job, **flat(found), "removed": len(report.removed), **counted}
        result |= {"leftover_files": len(report.leftovers), "leftover_bytes": report.leftover_bytes}
        self.log.info("Swept: %s", result)
        for warning in report.warnings:
            self.log.warning("%s", in_words(warning))
        self.raise_for(sorted(report.left.items()))
        return result


class RepairSavepointsOperator(SparkWork, RepositoryOperator):
    """Copies what is damaged or missing in savepoints of a job from replicas that have it undamaged.

    What was repaired is verified as a whole. The task fails if something stays damaged.

    Args:
        savepoint: Its id, the beginning of one, or `latest`; none for all of the job.
        sources: Replicas, the preferred one first; none for those that the job declares.
        plan_only: Read everything, but only say what would be repaired.

    Returns:
        `job`, `dry_run`, `ok`, `repaired` (files), `objects`, `bytes` (copied), `verified` (savepoints),
            `seconds`.
    """

    operation = "repair"

    savepoint: Templated[str | None] = argument(None)
    sources: Templated[Sequence[str]] = argument(())
    plan_only: Templated[bool] = argument(False)

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Repair; see the class.

        Raises:
            AirflowFailException: Something stays damaged.
        """
        with airflow_failures():
            self.skip_unless_asked()
            report = self.hook.repository.repair(
                self.job,
                self.savepoint,
                self.sources,
                plan_only=self.plan_only,
                by=asked_by(context),
                executor=self.machines,
            )
        done = "would be repaired" if report.dry_run else "repaired"
        for each in report.repaired:
            self.log.info("%s: %s, from %s", done, each.file, ", ".join(each.sources))
        for lost in report.not_repaired:
            self.log.error("not repaired: %s: %s", lost.file, lost.cause)
        if not report.ok:
            first = report.not_repaired[0] if report.not_repaired else None
            left = (
                f"{first.file}: {first.cause}" if first else "a savepoint that was repaired does not verify"
            )
            raise AirflowFailException(
                f"Savepoints of job {self.job} stay damaged: {left} Hint: name another replica that has them "
                "undamaged (sources=), or take a new savepoint."
            )
        if not report.repaired:
            self.log.info("Nothing is damaged.")
        return {
            "job": self.job,
            "dry_run": report.dry_run,
            "ok": report.ok,
            "repaired": len(report.repaired),
            "objects": sum(each.objects for each in report.repaired),
            "bytes": sum(each.bytes for each in report.repaired),
            "verified": len(report.verified),
            "seconds": round(report.seconds, 3),
        }


class CheckReplicasOperator(FindsJobs, BaseOperator):
    """Fails where a replica that a job declares lacks savepoints, or cannot be read. Only reads.

    Args:
        jobs_file: The `streaming_jobs.toml`; None for the one that the connection names.
        at_most: How many savepoints of a job a replica may lack: those that the next replication brings.

    Returns:
        `replicas`, `behind` (how many lack more than that), `lacking` (savepoints, over all replicas).
    """

    ui_color = StreambankOperator.ui_color

    jobs_file: Templated[str | PathLike[str] | None] = argument(None)
    declaration: OfJob[Declaration | None] = argument(None)
    streambank_conn_id: Templated[str] = argument(DEFAULT_CONN_ID)
    at_most: Templated[int] = argument(1)

    def execute(self, context: Context) -> dict[str, Any]:
        """Look; see the class.

        Raises:
            AirflowFailException: A replica is behind.
        """
        with airflow_failures():
            most = self.at_most or 0
            found = self.hook.repository.behind()
        late = [(place, job, lacking) for place, job, lacking in found if lacking > most]
        for place, job, lacking in found:
            self.log.log(
                logging.ERROR if (place, job, lacking) in late else logging.INFO,
                "%s lacks %s of %s.",
                place,
                say_count(lacking, "savepoint"),
                job,
            )
        if late:
            place, job, lacking = late[0]
            more = f" (and {len(late) - 1} more, in the log above)" if len(late) > 1 else ""
            raise AirflowFailException(
                f"The replica {place} lacks {say_count(lacking, 'savepoint')} of job {job}{more}. Hint: see "
                f"why the task replicate of {job.partition('/')[0]}.savepoint fails, or trigger that DAG."
            )
        return {
            "replicas": len({place for place, _, _ in found}),
            "behind": len({place for place, _, _ in late}),
            "lacking": sum(lacking for _, _, lacking in found),
        }
