"""What can be judged by its SLA: declared jobs, and queries that nobody declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streambank.core.errors import StreambankError
from streambank_airflow.hooks.declared import DeclaredJobs, find_declared
from streambank_airflow.hooks.verbs import connected
from streambank_airflow.watch.sla import SlaSubject


@dataclass(frozen=True, slots=True)
class SlaSubjects:
    """Finds what can be judged by its SLA: `hook.slas`."""

    declared: DeclaredJobs

    @connected
    def find(self, ref: str, checkpoint: str | None = None) -> SlaSubject:
        """A job, or one query of it.

        Args:
            ref: `job` or `job/query`; just a name where `checkpoint` is given.
            checkpoint: The directory of a query that is not declared.

        Raises:
            StreambankError: See `DeclaredJobs.find`; or the name is not allowed (code `bad-name`).
        """
        if checkpoint is not None:
            return SlaSubject.of_checkpoint(ref, checkpoint, self.declared.settings)
        return SlaSubject(ref, *self.declared.find(ref), access=self.declared.settings.s3)

    @connected
    def find_all(self, refs: Sequence[str] | None = None) -> dict[str, SlaSubject | StreambankError]:
        """Several jobs, or (for None) all that are declared; the file is read once.

        Returns:
            By reference, as given; for one that is not declared, or has a mistake, what is wrong with it.

        Raises:
            InputError: The jobs file is wrong.
        """
        declared, access = self.declared.read(), self.declared.settings.s3
        found: dict[str, SlaSubject | StreambankError] = {}
        for ref in (*declared.jobs, *declared.broken) if refs is None else refs:
            try:
                found[ref] = SlaSubject(
                    ref, *find_declared(declared, ref, self.declared.at_active_site), access=access
                )
            except StreambankError as error:
                found[ref] = error
        return found
