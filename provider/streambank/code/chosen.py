"""Which code a job's next driver runs: what it declares, unless an upgrade has chosen another one instead.

An upgrade may begin before what is declared may run, may go back, or may change what is not declared. What it
chose is a record of the stream `chosen/`: it names the declared code *instead of which* it counts. Once the
job declares something else, that counts again. So no start brings back a code that the
checkpoint has left behind. Nor does one run what only a record names: a signature, or what this user has laid
down (vouched.py), has to prove that an upgrade chose it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from streambank.code.code import Code
from streambank.code.kept import runnable
from streambank.code.vouched import check_vouched, forget_choices, is_vouched, unproven, vouch
from streambank.control.control import JobControl
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.storage.local.modes import close_directory

CHOSEN = "chosen"
"""The stream of what was chosen."""
UPGRADES = "upgrades"
"""The stream of what upgrades remember (upgrade/record.py): they say which code they go on or back to."""
INTERRUPTED = frozenset({"rehearsing", "stopping", "swapped", "undoing", "restored"})
"""States in which an upgrade was interrupted."""


@dataclass(frozen=True, slots=True)
class CodeChoice:
    """A code that counts instead of the declared one.

    Attributes:
        instead_of: The identity of the declared code for which it counts.
        instead_of_unread: The same where its program cannot be read, as on another machine.
        proven: Whether a signature, or this user, vouches for it.
    """

    instead_of: str | None
    instead_of_unread: str | None
    code: Code | None
    by: Mapping[str, str]
    why: str
    at: datetime
    proven: bool

    @property
    def words(self) -> str:
        where = self.code.application if self.code is not None else "what the job declares"
        why = f" ({self.why})" if self.why else ""
        said = f"An upgrade has chosen the code of {where}, until the job declares other code{why}."
        return said if self.proven else f"{said} That is not proven here, so no start from here runs it."

    def counts(self, declared: Code) -> bool:
        if self.code is None:
            return False
        if declared.program is None or self.instead_of == self.instead_of_unread:  # one of both was not read
            return declared.identity_unread == self.instead_of_unread
        return declared.identity == self.instead_of


def newest_choice(control: JobControl) -> CodeChoice | None:
    """What was chosen last; None where nothing ever was.

    Raises:
        FormatError: The record is damaged (code `damaged-record`).
        IntegrityError: It is not signed, and has to be (codes `not-signed`, `bad-signature`).
    """
    record = control.signed(CHOSEN).latest()
    if record is None:
        return None
    return record.decode(
        CodeChoice,
        lacking={"why": ""},
        known={"proven": is_vouched(control, "choice", record.data)},
        hint="It was cut off or edited. Once you know which code the job has to run, move it away.",
    )


def choose_code(
    control: JobControl, declared: Code, code: Code | None, *, by: Mapping[str, str], why: str
) -> None:
    """Choose what the job's next driver runs, until the job declares something else; None: what it declares.

    Raises:
        RefusedError: Only a record names the code (code `code-not-proven`).
    """
    if code is not None and code.identity == declared.identity:
        code = None
    data = {
        "instead_of": declared.identity if code is not None else None,
        "instead_of_unread": declared.identity_unread if code is not None else None,
        "code": code.to_dict() if code is not None else None,
        "at": to_json_time(utc_now()),
        "by": dict(by),
        "why": why,
    }
    if code is not None:
        check_vouched(control, code)
        vouch(control, "choice", data)  # before the record: no moment has one that nobody vouches for
    close_directory(f"{control.store.uri}/{CHOSEN}", 0o770)
    control.signed(CHOSEN).append(data)
    forget_choices(control, data)


def code_that_counts(job: Job, control: JobControl) -> Code:
    """What the job's next driver runs."""
    declared, chosen = Code.declared(job), newest_choice(control)
    if chosen is not None and chosen.code is not None and chosen.counts(declared):
        return chosen.code
    return declared


def as_chosen(job: Job, control: JobControl) -> tuple[Job, CodeChoice | None]:
    """The job as its next driver runs it, and what was chosen instead of what it declares, if anything.

    Raises:
        RefusedError: The program that was chosen is not there any more (code `code-not-kept`), or it is not
            proven that it was chosen (`code-not-proven`).
    """
    chosen = newest_choice(control)
    if chosen is None or chosen.code is None:
        return job, None
    declared = Code.declared(job)
    if not chosen.counts(declared):
        return job, None
    if not chosen.proven:
        raise unproven(control, chosen.code)
    return runnable(chosen.code, job, control), chosen


def needed_programs(control: JobControl) -> set[str]:
    """Digests of the programs that what was chosen, or the newest upgrade, may have to run again."""
    found: set[str] = set()
    for stream, names in (
        (control.signed(CHOSEN), ("code",)),
        (control.signed(UPGRADES), ("before", "after")),
    ):
        record = stream.latest()
        data = record.data if record is not None else {}
        for name in names:
            code = data.get(name)
            if isinstance(code, dict) and code.get("program") is not None:
                found.add(str(code["program"]))
    return found


def settle_choice(job: Job, control: JobControl, *, by: Mapping[str, str]) -> None:
    """Note at the launch of the declared code that it counts again, so that an earlier choice stays gone."""
    chosen = newest_choice(control)
    if chosen is not None and chosen.code is not None:
        choose_code(control, Code.declared(job), None, by=by, why="the job declares other code since")
