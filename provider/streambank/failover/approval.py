"""What a person has approved of a fail-over, and whether it still is so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from streambank.core.approval import outdated
from streambank.core.errors import InputError, NotFoundError, RefusedError
from streambank.core.shape import JsonObject, decode
from streambank.failover.report import FailoverPlan
from streambank.recovery.approval import missing_of, more_missing


@dataclass(frozen=True, slots=True)
class Approved(JsonObject):
    """What a plan showed: a fail-over that was approved must not lose more than that.

    Attributes:
        number: The number of the record that begins the fail-over.
        answers: The other site answered, so that it is fenced and gives a last savepoint.
        batches: The batch of each query's savepoint at the site.
        newest: The newest batch of each query, its sinks, or the other site: without a last savepoint, what
            came after that must not be lost.
        missing: How many files each output lacked, by its path; none in what an earlier version has kept.
    """

    site: str
    was: str
    number: int
    answers: bool
    batches: Mapping[str, int]
    newest: Mapping[str, int]
    missing: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: FailoverPlan) -> Approved:
        """What this plan shows."""
        return cls(
            plan.site,
            plan.was,
            plan.number,
            plan.answers,
            {name: one.batch for name, one in plan.savepoints.items()},
            plan.newest,
            {path: files for one in plan.restores.values() for path, files in missing_of(one).items()},
        )

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Approved:
        """From what `to_dict` gave.

        Raises:
            InputError: Something is missing, too much, or of another kind (code `bad-option`).
        """

        def refuse(what: str, why: str) -> InputError:
            return InputError(
                f"The {what} is not one of a plan: {why}.",
                code="bad-option",
                hint="Give what a task with `plan_only` left as `approval`, unchanged.",
            )

        what = "approval of the fail-over"
        if unknown := data.keys() - {one.name for one in fields(cls)}:
            raise refuse(what, f"no plan has {', '.join(sorted(unknown))}")
        return decode(cls, data, what, refuse=refuse)

    def check(self, plan: FailoverPlan) -> None:
        """Make sure that a plan of now loses nothing more than the one that was approved.

        Raises:
            RefusedError: It does, or the sites have changed (code `approval-outdated`).
            StreambankError: The savepoints could not be read, or are damaged, so it is not known.
        """
        if (self.site, self.was, self.number) != (plan.site, plan.was, plan.number):
            why = f"another fail-over of the job came first (number {plan.number - 1})"
            raise _outdated(plan.job, why)
        if self.answers and not plan.answers:
            why = f"a site answered, and does not now: {plan.answers_why.rstrip('.')}"
            raise _outdated(plan.job, why)
        for name, batch in self.batches.items():
            now = plan.savepoints.get(name)
            if now is None:
                for error in (*plan.refusals, *plan.without_final):
                    if not isinstance(error, (RefusedError, NotFoundError)):
                        raise error
            if now is None or now.batch < batch:
                raise _outdated(plan.job, f"the savepoint of query {name} with batch {batch} is gone")
        for one in plan.restores.values():
            if said := more_missing(self.missing, one):
                raise _outdated(plan.job, said)
        if not plan.answers:
            for name, newest in plan.newest.items():
                self.check_lost(plan.job, name, newest, plan.restores[name].batch)

    def check_lost(self, job: str, query: str, newest: int, batch: int) -> None:
        """Make sure that a restore without a last savepoint loses no batch that the plan did not show.

        Raises:
            RefusedError: It does (code `approval-outdated`).
        """
        shown = self.newest.get(query, -1)
        if newest > max(batch, shown):
            began = f" from batch {shown}" if shown >= 0 else ""
            why = f"query {query} has gone on{began} to {newest}, and the savepoint is of batch {batch}"
            raise _outdated(job, why)


def _outdated(job: str, why: str) -> RefusedError:
    return outdated(
        f"The fail-over of job {job} was approved, but things have changed since its plan was shown: {why}.",
        "Ask for the fail-over again: its plan shows how things are now.",
    )
