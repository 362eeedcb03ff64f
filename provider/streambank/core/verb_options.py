"""What a person may ask of each verb: the options of the command line, forms, operators and requests.

Each is declared here, and nowhere else (options.py). The order is that of forms.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from streambank.core.choices import ClosureKind, Compare, OnBreach, RestoreMode, SinkChoice, SourceChoice
from streambank.core.options import Option
from streambank.core.restore_choices import parse_new_sinks, parse_sink_choices


def absolute(path: str) -> str:
    """A path where it is; a name without a folder is looked for in PATH."""
    return path if Path(path).name == path else str(Path(path).absolute())


def _whole_path(path: str) -> str:
    return str(Path(path).absolute())


def _words(text: str) -> tuple[str, ...]:
    return tuple(shlex.split(text))


_PIN = Option("Exempt it from retention.")


@dataclass(kw_only=True)
class SavepointOptions:
    """What a person may ask of a savepoint of each query of a job."""

    batch: Annotated[
        int | None,
        Option("A committed batch that Spark still retains.", metavar="N", least=0, usual="the newest"),
    ] = None
    name: Annotated[
        str | None,
        Option(
            "Give it a name that is unique within the job, or within each query of several, such as "
            "before-upgrade. It exempts it from nothing: pin does.",
            metavar="NAME",
        ),
    ] = None
    pin: Annotated[bool, _PIN] = False
    new_query: Annotated[
        bool, Option("The job was started from nothing, so its query id may be another one.")
    ] = False


@dataclass(kw_only=True)
class TakeOptions(SavepointOptions):
    """What a person may ask of a take of one query."""

    closure: Annotated[
        ClosureKind | None,
        Option(
            "safe also keeps one older snapshot than minimal, so that Spark can repair a bad one.",
            usual="as declared, or safe",
        ),
    ] = None
    file_sinks: Annotated[
        tuple[str, ...],
        Option("Output directory of a file sink of the query.", flag="--file-sink", metavar="DIR"),
    ] = ()
    kafka: Annotated[
        str | None,
        Option(
            "Servers of the query's Kafka, if they are not those that the job declares.",
            metavar="HOST:PORT,...",
        ),
    ] = None


@dataclass(kw_only=True)
class ImportOptions:
    """What a person may ask of an import: a copy of a checkpoint becomes a savepoint."""

    batch: Annotated[
        int | None, Option("This batch.", metavar="N", least=0, usual="the newest that is whole in the copy")
    ] = None
    file_sinks: Annotated[
        tuple[str, ...],
        Option(
            "Output directory of a file sink of the query, where it is now. The records of a job that runs "
            "under Streambank name it.",
            flag="--file-sink",
            metavar="DIR",
        ),
    ] = ()
    without_sinks: Annotated[
        bool,
        Option(
            "Save nothing of sinks that the job's records name, such as one that no longer tells what it had "
            "at the batch. A restore then needs a choice for them."
        ),
    ] = False
    pin: Annotated[bool, _PIN] = False
    new_query: Annotated[bool, Option("The copy may be of another query than that of the job.")] = False


def _calendar(unit: str) -> Option:
    return Option(f"Keep the newest of each of the last N {unit} that have one.", metavar="N")


@dataclass(kw_only=True)
class ExpireOptions:
    """Which savepoints a person wants to keep; what is left out is no rule."""

    keep_last: Annotated[int | None, Option("Keep the newest N.", metavar="N")] = None
    keep_hourly: Annotated[int | None, _calendar("hours")] = None
    keep_daily: Annotated[int | None, _calendar("days")] = None
    keep_weekly: Annotated[int | None, _calendar("ISO weeks")] = None
    keep_monthly: Annotated[int | None, _calendar("months")] = None
    keep_yearly: Annotated[int | None, _calendar("years")] = None
    keep_within_s: Annotated[
        float | None,
        Option("Keep all that were taken within this time before the newest: 7d, 36h.", needs_unit=True),
    ] = None
    min_verified: Annotated[
        int | None,
        Option(
            "Keep the newest K verified ones of a job, whatever the rules say.",
            metavar="K",
            least=0,
            usual="1",
        ),
    ] = None
    max_age_s: Annotated[
        float | None,
        Option(
            "Drop all that are older than this, pinned and verified ones too: 90d. Only those being read "
            "stay. Without other rules it keeps all younger ones.",
            needs_unit=True,
        ),
    ] = None
    time_zone: Annotated[
        str | None,
        Option(
            "By whose calendar and clocks hours, days, weeks and so on are: Europe/Berlin.",
            metavar="ZONE",
            usual="the job's in the jobs file, else UTC",
        ),
    ] = None
    plan_only: Annotated[
        bool, Option("Only show which would be kept and which dropped.", flag="--dry-run")
    ] = False


@dataclass(kw_only=True)
class SweepOptions:
    """What a person may ask of a sweep."""

    grace_s: Annotated[
        float,
        Option(
            "How long expired savepoints can be brought back, and files pending delete stay; at least 1h."
        ),
    ] = 86_400.0
    plan_only: Annotated[bool, Option("Only show what would happen.", flag="--dry-run")] = False


@dataclass(kw_only=True)
class UpgradeOptions:
    """What a person may ask of an upgrade of a running job."""

    plan_only: Annotated[
        bool,
        Option(
            "Show what would change and whether it could be undone, and do nothing.",
            title="Only show what would change",
            flag="--plan",
        ),
    ] = False
    compare: Annotated[
        Compare,
        Option(
            "What the new code has to compute as the old one did, in the rehearsal; if it does not, the job "
            "stays as it is. Differences are reported all the same.",
            title="What must be equal",
            choices={
                "none": "differences are only reported",
                "counts": "as many rows of input, state and output",
                "values": "the same rows, and the same state",
            },
        ),
    ] = "none"
    watch_s: Annotated[
        float,
        Option(
            "For how long the new code is watched. If it does not get on, it is undone.",
            title="Watch the new code for",
        ),
    ] = 120.0
    batches: Annotated[
        int | None,
        Option(
            "How many batches of the live query the rehearsal executes again.",
            title="Batches to execute again",
            metavar="N",
            least=0,
            usual="that of drills",
        ),
    ] = None
    application: Annotated[
        str | None,
        Option(
            "Another application than the declared one.",
            title="Application",
            metavar="PATH",
            parse=_whole_path,
        ),
    ] = None
    args: Annotated[
        tuple[str, ...] | None,
        Option(
            "Other arguments than the declared ones, all of them.",
            title="Arguments",
            metavar="'ARG ...'",
            parse=_words,
        ),
    ] = None
    conf: Annotated[
        Mapping[str, str],
        Option(
            "Settings of Spark over the declared ones, by name.",
            title="Settings of Spark",
        ),
    ] = field(default_factory=dict)
    unrehearsed: Annotated[
        bool,
        Option("Go on although the rehearsal could not run the new code.", title="Go on without a rehearsal"),
    ] = False
    no_way_back: Annotated[
        bool,
        Option("Go on although the upgrade could not be undone by itself.", title="Go on without a way back"),
    ] = False
    cold: Annotated[
        bool,
        Option(
            "Launch the new driver only when the old one has stopped: where there is no room for both.",
            title="Launch the new driver after the stop",
            section="More",
        ),
    ] = False
    python: Annotated[
        str | None,
        Option("Another interpreter, with another PySpark, say.", metavar="PATH", parse=absolute),
    ] = None
    spark_home: Annotated[
        str | None, Option("Another distribution of Spark.", metavar="DIR", parse=_whole_path)
    ] = None
    scratch: Annotated[
        str | None,
        Option(
            "Under which directory the rehearsal writes; it is removed again.",
            metavar="DIR",
            usual="that of drills",
        ),
    ] = None
    timeout_s: Annotated[
        float | None,
        Option("How long the rehearsal's application may take.", usual="that of drills"),
    ] = None


@dataclass(kw_only=True)
class DrillOptions:
    """What a person may ask of a drill: a restore that is rehearsed on a copy, beside the running job."""

    savepoint: Annotated[
        str | None,
        Option(
            "Which savepoint of each query is restored: latest-good is the newest that verifies, random any "
            "that is kept, each all of them, one drill after the other. Or a time, for the newest from then "
            "or before; a batch (batch:41); a name; an id, or the beginning of one. With several queries no "
            "id and no batch.",
            title="Savepoint",
            metavar="SAVEPOINT",
            usual="as declared",
        ),
    ] = None
    repository: Annotated[
        str | None,
        Option(
            "Where the savepoint comes from: the job's repository, or a replica.",
            title="Repository",
            flag="--from",
            metavar="DIR",
            usual="as declared",
        ),
    ] = None
    batches: Annotated[
        int | None,
        Option(
            "How many batches of the live query after the savepoint's the copy executes, for comparison.",
            title="Batches to execute again",
            metavar="N",
            least=0,
            usual="as declared, or 3",
        ),
    ] = None
    limit: Annotated[
        int | None,
        Option(
            "With each: at most the newest N savepoints; 0: all.",
            title="At most so many savepoints",
            metavar="N",
            least=0,
            usual="as declared, or all",
        ),
    ] = None
    time_limit_s: Annotated[
        float | None,
        Option(
            "With each: after this long no more drills begin, and the next round with a limit goes on with "
            "the savepoints that are left; 0s: no limit.",
            title="Time limit of all drills",
            usual="as declared, or no limit",
        ),
    ] = None
    keep: Annotated[
        bool,
        Option(
            "Leave checkpoint, output and log of the copy, for a look; delete them later.",
            title="Keep the copy",
        ),
    ] = False
    scratch: Annotated[
        str | None,
        Option(
            "Under which directory the copy is written; it is removed again.",
            metavar="DIR",
            usual="as declared, or beside the checkpoint",
        ),
    ] = None
    timeout_s: Annotated[
        float | None,
        Option(
            "How long the application may take; with each, for each savepoint.",
            usual="as declared, or 30m",
        ),
    ] = None


@dataclass(kw_only=True)
class RefreshOptions:
    """What a person may ask of a refresh: a copy of a job's state that is made, or made again."""

    savepoint: Annotated[
        str,
        Option(
            "Which savepoint of each query becomes the copy: latest-good is the newest moment that verified "
            "savepoints of all queries reach. Or a time, for the newest from then or before; a name; for a "
            "job with one query a batch (batch:41), an id, or the beginning of one.",
            title="Savepoint",
            metavar="[REFERENCE]",
            positional=True,
        ),
    ] = "latest-good"
    repository: Annotated[
        str | None,
        Option(
            "Where the savepoint comes from: a replica, or nearest, the closest of the repository and the "
            "job's replicas that has it undamaged.",
            title="Repository",
            flag="--from",
            metavar="DIR|nearest",
            usual="what the copy declares, or the repository",
        ),
    ] = None
    source: Annotated[
        SourceChoice | None,
        Option(
            "If the sources no longer have what the copy would read next, or cannot be asked, or cannot be "
            "read again: refuse; accept goes on without it.",
            title="Input that cannot be read again",
            choices={
                "refuse": "fail if input is lost, unknown, or cannot be repeated",
                "accept": "go on without it",
            },
            usual="what the copy declares, or refuse",
        ),
    ] = None


SINK = Option(
    "If output is newer than the savepoint: refuse; rollback takes guarded sinks back; rollback-accept also "
    "where older output files are gone, which stay so; accept goes on, and rows are repeated or lost.",
    title="Output written after the savepoint",
    choices={
        "refuse": "fail if rows would be lost or repeated",
        "rollback": "set the output of later batches aside",
        "rollback-accept": "the same, and go on without older output files that are gone",
        "accept": "leave the output as it is",
    },
)
SOURCE = Option(
    "If Kafka lacks records that the query would read next, or cannot be asked, if files are gone that it "
    "would read again, or a source cannot be read again: refuse; accept goes on without them.",
    title="Input that cannot be read again",
    choices={
        "refuse": "fail if input is lost, unknown, or cannot be repeated",
        "accept": "go on without it",
    },
    section="More",
)


KAFKA = Option(
    "Servers of the query's Kafka, if they are not those that the savepoint names.", metavar="HOST:PORT,..."
)
_SINK_OF = Option(
    "The same for one sink, by the path that a plan shows.",
    metavar="SINK=CHOICE",
    parse=parse_sink_choices,
)
_FILE_SINKS = Option(
    "Output directory of a file sink that the savepoint does not name, and which query of several writes it.",
    flag="--file-sink",
    metavar="[QUERY=]DIR",
)
_NEW_SINKS = Option(
    "The query writes to the new directory NEW instead of the file sink OLD.",
    flag="--new-sink",
    metavar="OLD=NEW",
    parse=parse_new_sinks,
)


@dataclass(kw_only=True)
class SingleSinkOptions:
    """What a person may say of single sinks."""

    sink_of: Annotated[Mapping[str, SinkChoice], _SINK_OF] = field(default_factory=dict)
    file_sinks: Annotated[tuple[str, ...], _FILE_SINKS] = ()
    new_sinks: Annotated[Mapping[str, str], _NEW_SINKS] = field(default_factory=dict)


@dataclass(kw_only=True)
class RestoreJobOptions:
    """What a person may ask of a restore of all queries of a job, as one."""

    savepoint: Annotated[
        str,
        Option(
            "Which savepoint of each query. latest-good, the default, is the newest moment that verified "
            "savepoints of all queries reach.",
            metavar="[REFERENCE]",
            positional=True,
        ),
    ] = "latest-good"
    repository: Annotated[
        str | None,
        Option(
            "Where the savepoints come from, if not from the repository: a replica, or nearest: the "
            "repository or declared replica that is cheapest to read, and has them undamaged.",
            flag="--from",
            metavar="LOCATION|nearest",
        ),
    ] = None
    sink: Annotated[SinkChoice, SINK] = "refuse"
    sink_of: Annotated[Mapping[str, SinkChoice], _SINK_OF] = field(default_factory=dict)
    source: Annotated[SourceChoice, SOURCE] = "refuse"
    kafka: Annotated[str | None, KAFKA] = None
    file_sinks: Annotated[tuple[str, ...], _FILE_SINKS] = ()


@dataclass(kw_only=True)
class RestoreOptions(RestoreJobOptions):
    """What a person may ask of a restore of one query."""

    into: Annotated[str | None, Option("Restore into this new or empty directory.", metavar="DIR")] = None
    mode: Annotated[
        RestoreMode,
        Option(
            "no-claim leaves the savepoint as it is; claim gives it to the job, so that it may expire; fork "
            "starts a second query with a new id."
        ),
    ] = "no-claim"
    new_sinks: Annotated[Mapping[str, str], _NEW_SINKS] = field(default_factory=dict)
    link: Annotated[bool, Option("Share bytes with the repository by hard links, where possible.")] = False


@dataclass(kw_only=True)
class FailoverOptions:
    """What a person may ask of a fail-over: a job that goes on at its other site."""

    to: Annotated[
        str | None,
        Option(
            "The site at which the job goes on.",
            title="Site",
            metavar="primary|standby",
            usual="the one that is not active",
        ),
    ] = None
    is_down: Annotated[
        str | None,
        Option(
            "You know that this site, which does not answer, is down. If its driver runs on all the same, "
            "two drivers write to every sink that both sites share, until the site answers again. This is "
            "recorded.",
            title="A site that is down",
            metavar="primary|standby",
        ),
    ] = None
    sink: Annotated[SinkChoice, SINK] = "refuse"
    final_savepoint: Annotated[
        bool,
        Option(
            "Refuse if the site that was active answers, and cannot give a last savepoint; or go on from the "
            "newest savepoint there is.",
            title="Last savepoint",
            section="More",
        ),
    ] = True
    source: Annotated[SourceChoice, SOURCE] = "refuse"
    savepoint: Annotated[
        str | None,
        Option(
            "What is restored if no last savepoint could be taken: an id or its unique beginning, or "
            "latest-good.",
            metavar="SAVEPOINT",
            usual="latest-good",
        ),
    ] = None
    timeout_s: Annotated[
        float | None, Option("How long the start may take, such as 30m.", usual="as declared")
    ] = None


@dataclass(kw_only=True)
class StartOptions:
    """What a person may ask of a start."""

    fresh_start: Annotated[
        bool,
        Option(
            "Accept that the job's records are lost (repository-lost), and start without them. This is "
            "recorded.",
            title="Accept lost records",
            section="Lost repository",
        ),
    ] = False


ForceAfter = Annotated[
    float | None,
    Option(
        "Force the stop if no batch boundary is reached within this time, such as 60s.",
        title="Force after",
        usual="the declared time",
    ),
]


@dataclass(kw_only=True)
class StopOptions:
    """What a person may ask of a stop."""

    savepoint: Annotated[
        bool,
        Option("Take a savepoint of each query once it stands still.", title="Take a savepoint"),
    ] = False
    drain: Annotated[
        bool, Option("First wait until a trigger finds nothing new.", title="Work off the input first")
    ] = False
    force_after_s: ForceAfter = None


@dataclass(kw_only=True)
class RestartOptions:
    """What a person may ask of a restart."""

    force_after_s: ForceAfter = None


@dataclass(kw_only=True)
class CompactOptions:
    """What a person may ask of a compaction of a checkpoint's files."""

    stopped: Annotated[
        bool,
        Option(
            "The query is stopped: move everything that no kept batch needs. Of a declared job this is "
            "checked, and a running driver is a refusal."
        ),
    ] = False
    keep_batches: Annotated[
        int,
        Option("Keep the newest N committed batches of a stopped query.", metavar="N", least=1),
    ] = 1
    older_than_s: Annotated[
        float,
        Option("Of a running query, move unfinished writes older than this: 1h or more.", metavar="TIME"),
    ] = 3600.0
    plan_only: Annotated[bool, Option("Only show what would be moved, and why.", flag="--dry-run")] = False


@dataclass(kw_only=True)
class CleanOptions:
    """What a person may ask of the removal of what work on a job has left."""

    keep: Annotated[
        int | None,
        Option(
            "Keep the newest N generations of each query, the current one among them.",
            metavar="N",
            least=1,
            usual="as declared, or 2",
        ),
    ] = None
    keep_for_s: Annotated[
        float | None,
        Option(
            "Keep each directory for this long after it was left.",
            usual="as declared, or 7d",
            needs_unit=True,
        ),
    ] = None


@dataclass(kw_only=True)
class SlaOptions:
    """What a person may ask of a check of what a job promises."""

    on_breach: Annotated[
        OnBreach,
        Option(
            "What becomes of the task.",
            title="When something is broken",
            choices={
                "fail": "the task fails",
                "warn": "a warning in its log",
                "report": "only in the result",
            },
        ),
    ] = "fail"
    tell: Annotated[
        bool,
        Option(
            "Alert the declared notifiers of what has changed since their last alert. A scheduled run does "
            "not repeat these alerts.",
            title="Send alerts",
        ),
    ] = True
    skew: Annotated[
        bool,
        Option(
            "Read from the state files: how unevenly the state is spread over partitions.",
            title="Measure skew",
            section="More",
        ),
    ] = True
