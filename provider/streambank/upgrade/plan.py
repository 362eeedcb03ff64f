"""What an upgrade would change, and whether it could be undone: asked before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streambank.checkpoint.schema.kept_settings import kept_settings
from streambank.code.code import Code, differences
from streambank.code.kept import why_not_runnable
from streambank.code.program import read_program
from streambank.control.control import JobControl
from streambank.core.errors import ConflictError, FormatError, InputError, RefusedError
from streambank.core.names import QueryRef
from streambank.core.verb_options import UpgradeOptions
from streambank.declaration.credentials import is_credential
from streambank.declaration.declaration import Job
from streambank.drills.foreseen import why_not_run
from streambank.driver.connections import placed
from streambank.driver.launcher import Launcher
from streambank.driver.other_release import newest_closure
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec, proven_launch, spec_of
from streambank.inputs.clean_source import OPTION, cleaning_of
from streambank.job.start import check_launch


@dataclass
class UpgradeRequest(UpgradeOptions):
    """What an upgrade is asked for, of a job as it is declared now."""

    job: Job
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""

    def new_code(self) -> Code:
        """What the job shall run: what it declares, with what is asked for instead.

        Raises:
            InputError: A setting is a credential, or a field of its own (code `bad-option`).
        """
        for name, value in self.conf.items():
            if is_credential(name, value):
                raise InputError(
                    f"The setting {name} holds a credential, and pages, event logs and records show it.",
                    code="bad-option",
                    hint="Credentials come from the environment, a role, or files of Hadoop or Java.",
                )
            if name in ("spark.master", "spark.submit.deployMode"):
                raise InputError(
                    f"The setting {name} is not one that an upgrade changes.",
                    code="bad-option",
                    hint="Declare where the job runs: `master`, and `launch.deploy_mode`.",
                )
        job = self.job
        named = replace(
            job,
            application=self.application or job.application,
            args=job.args if self.args is None else self.args,
            spark={**job.spark, **self.conf},
            named_python=self.python or job.named_python,
            python=self.python or job.python,
            spark_home=self.spark_home or job.spark_home,
            named_spark_home=self.spark_home or job.named_spark_home,
        )
        return Code.of(named, read_program(named.application, named.spark))


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """What an upgrade would do.

    Attributes:
        changes: In what they differ, for people; empty where they do not.
        notes: New settings that change nothing, since the checkpoint keeps other values; what may stand in
            the way back though it is not sure; and where a choice of the new code counts.
    """

    before: Code | None
    after: Code
    declared: Code
    runs: Job
    changes: tuple[str, ...]
    no_way_back: str
    for_good: bool
    launch_id: str
    notes: tuple[str, ...] = ()


def plan_upgrade(request: UpgradeRequest, control: JobControl, launcher: Launcher) -> UpgradePlan:
    """See what an upgrade would do. Nothing is stopped or written.

    Raises:
        RefusedError: No driver of the job runs (code `nothing-to-upgrade`); or the new code cannot be
            launched on the job's checkpoint (driver/prepare.py, driver/other_release.py).
        StreambankError: The new code cannot be launched at all (`Launcher.check`).
    """
    job = placed(request.job)
    launched = running_launch(job, control)
    after = request.new_code()
    runs = after.applied(job)
    version = check_launch(runs, control, launcher)
    prepare_launch(runs, control, by=request.by)
    before, no_way_back, for_good = code_of(launched), "", False
    if before is None:
        changes = [
            "it is not known what runs: an older version of Streambank launched it, or its launch was changed"
        ]
        no_way_back = (
            "it is not known what ran: an older version of Streambank launched it, or its launch was changed"
        )
    else:
        changes = differences(before, after) if before.identity != after.identity else []
        if version is not None and launched.spark_version not in (None, version):
            changes.append(f"Spark is {version}, and was {launched.spark_version}")
            if (before.python, before.spark_home) == (after.python, after.spark_home):
                no_way_back = f"Spark {version} is where Spark {launched.spark_version} was"
                for_good = True
        no_way_back = no_way_back or why_not_runnable(before, job, control) or ""
    notes = settings_without_effect(runs, control, {} if before is None else before.spark)
    notes += (*cleaned_sources(after), *cannot_rehearse(job, control))
    declared = Code.declared(job)
    notes += proven_here_only(after.identity, declared, control)
    return UpgradePlan(
        before, after, declared, runs, tuple(changes), no_way_back, for_good, launched.launch_id, notes
    )


def proven_here_only(identity: str, declared: Code, control: JobControl) -> tuple[str, ...]:
    """That a choice of code keeps everybody else from starting the job; for people.

    Args:
        declared: What the job declares: that needs no proof.
    """
    if control.signer.keys or identity == declared.identity:
        return ()
    return (
        "No signing key vouches for the code that this upgrade chooses: it counts only for this user on this "
        "host, or with the same XDG_STATE_HOME. Any other start is refused (code-not-proven) until the job "
        "declares that code.",
    )


def cannot_rehearse(job: Job, control: JobControl) -> tuple[str, ...]:
    """That new code which writes and reads as the running code does cannot be rehearsed; for people."""
    why = why_not_run(job, control)
    return (
        (f"The rehearsal could not run the new code, so the upgrade needs --unrehearsed: {why}",)
        if why
        else ()
    )


def cleaned_sources(after: Code) -> tuple[str, ...]:
    """That the new code takes away files that the old one would have to read again after a way back.

    Returns:
        For people; empty where the application does not set `cleanSource`, or cannot be read here.
    """
    settings = cleaning_of(after.application).settings
    if not settings:
        return ()
    line, value = settings[0]
    return (
        f"{after.application} sets {OPTION} to {value} in line {line}: once the new code has taken away "
        "files of its source, the upgrade is not undone by itself (source-would-lose-files).",
    )


def settings_without_effect(runs: Job, control: JobControl, before: Mapping[str, str]) -> tuple[str, ...]:
    """New settings that change nothing, since the checkpoints of the job keep other values.

    Returns:
        For people, each with what does change it.

    Raises:
        StorageError: A checkpoint cannot be read.
    """
    new = {name: value for name, value in runs.spark.items() if before.get(name) != value}
    found = []
    for query in runs.queries if new else ():
        generation = control.generation(query)
        try:
            closure = None if generation is None else newest_closure(generation.location)
        except ConflictError:
            continue  # it moves: the rehearsal has a copy that does not
        called = str(QueryRef.of(runs.name, query))
        found += [
            f"{one.cause} {one.way_out(called)}" for one in (kept_settings(closure, new) if closure else ())
        ]
    return tuple(dict.fromkeys(found))


def code_of(launch: LaunchSpec) -> Code | None:
    """What was launched; None where an older version of Streambank launched it."""
    try:
        return None if launch.code is None else Code.from_dict(launch.code)
    except FormatError:
        return None


def launched_code(control: JobControl, launch_id: str) -> Code | None:
    """The code of a launch, as it was written; None where that is not known."""
    launch = proven_launch(control, launch_id)
    return None if launch is None else code_of(launch)


def last_code(control: JobControl) -> Code | None:
    """What the newest driver of the job ran, whether it lives or not; None where that is not known."""
    for record in control.lease.claims.records.newest_first():
        if record.data.get("purpose") == "run":
            return launched_code(control, str(record.data.get("launch_id")))
    return None


def running_launch(job: Job, control: JobControl) -> LaunchSpec:
    """The launch of the driver that runs the job.

    Raises:
        RefusedError: None does (code `nothing-to-upgrade`).
    """
    view = control.lease.view()
    holder = view.holder if view is not None and view.state == "live" else None
    if holder is not None and holder.details.get("purpose") == "run":
        found = spec_of(control, str(holder.details.get("launch_id")))
        if found is not None:
            return proven_launch(control, found.launch_id) or replace(found, code=None)
    raise RefusedError(
        f"No driver of job {job.name} runs, so there is nothing to upgrade.",
        code="nothing-to-upgrade",
        hint=f"`streambank job start {job.name}` starts a stopped job with the code that its jobs file "
        "declares.",
    )
