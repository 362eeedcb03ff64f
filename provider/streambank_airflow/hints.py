"""What to do about an error, in Airflow's words: DAGs, form fields, operators and arguments.

The engine's hints name options of the command line, which nobody has on a task's page. Where each of them is
a field of a form, too, its title takes the option's place, so that no way out is lost that the engine has
found for this very case. A hint that names a command is replaced by a text for the error's code. Hints
without such words stay as they are.

All of this speaks of the DAGs that `build_dags` makes. In the task of another DAG there are no such DAGs and
forms: there the same hint names operators and their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow.sdk import get_current_context

from streambank.core.errors import StreambankError
from streambank_airflow.configuration import TAG

_OF_THE_COMMAND_LINE = re.compile(r"(?<![\w-])streambank [a-z]+|(?<![\w-])--[a-z]")
"""A command or an option."""

OPERATORS = {
    "compact": "CompactStateOperator",
    "drill": "RunDrillOperator",
    "failover": "FailoverStreamingJobOperator",
    "restore": "RestoreSavepointOperator",
    "run": "StartStreamingJobOperator",
    "savepoint": "CreateSavepointOperator",
    "sla": "CheckSlaOperator",
    "stop": "StopStreamingJobOperator",
    "upgrade": "UpgradeStreamingJobOperator",
}
"""Verb of a job's DAG -> the operator that does it in a DAG of one's own."""
FIELDS = {
    "A site that is down": ("failover", "is_down"),
    "Accept lost records": ("run", "fresh_start"),
    "Batches to execute again": ("drill", "batches"),
    "Directory to restore into": ("restore", "into"),
    "Go on without a rehearsal": ("upgrade", "unrehearsed"),
    "Go on without a way back": ("upgrade", "no_way_back"),
    "Input that cannot be read again": ("restore", "source"),
    "Keep the copy": ("drill", "keep"),
    "Last savepoint": ("failover", "final_savepoint"),
    "Measure skew": ("sla", "skew"),
    "New output directories": ("restore", "new_sinks"),
    "Output written after the savepoint": ("restore", "sink"),
    "Repository": ("restore", "repository"),
    "Single sinks": ("restore", "sink_of"),
    "Site": ("failover", "to"),
    "Take a savepoint": ("stop", "savepoint"),
    "What becomes of the savepoint": ("restore", "mode"),
}
"""Title of a form's field -> the verb of its DAG, and the argument of that verb's operator."""
_SWITCHES = frozenset(
    {"fresh_start", "unrehearsed", "no_way_back", "keep", "final_savepoint", "skew", "savepoint"}
)
_OPTIONS = {
    "sink": "Output written after the savepoint",
    "source": "Input that cannot be read again",
    "mode": "What becomes of the savepoint",
    "into": "Directory to restore into",
    "new-sink": "New output directories",
    "unrehearsed": "Go on without a rehearsal",
}
"""Option of the command line -> the title of the field that is the same."""
_CHOICES = "refuse|rollback-accept|rollback|accept|fork|no-claim|claim|full|nearest"
_OPTION = re.compile(rf"`?--({'|'.join(_OPTIONS)})(?![\w-])(?: ({_CHOICES}|[^ `]+=[^ `]*\w|DIR)(?![\w-]))?`?")
_FIELD = "|".join(map(re.escape, sorted(FIELDS, key=len, reverse=True)))

_WORDS = tuple(
    (re.compile(said), instead)
    for said, instead in (
        (r" in Airflow, or run `streambank [^`]*`", ""),
        (r"`streambank job restore` does both with --with \S+, and in Airflow ", ""),
        (
            r"When it answers again: `streambank failover \S+ --fence`\. The job's driver at the (\S+) does "
            r"that, too\.",
            r"The job's driver at the \1 does that when it answers again.",
        ),
        (r"`streambank job start ([^`@]+@[^`]+)`", r"StartStreamingJobOperator with `\1` as its `job`"),
        (r"`streambank job status [^`]+` shows", "The job's page shows"),
        (r", or `streambank job (?:start|stop) [^`]+`", ""),
        (r"`streambank job stop ([^`]+)`", r"trigger \1.stop"),
        (r"`streambank doctor [^`]+`(?: or `streambank doctor [^`]+`)*", "DiagnoseStreamingJobOperator"),
        (r"`streambank fork [^`]+`", "RefreshCopyOperator"),
        (r"`streambank state migrate[^`]*`", "MigrateStateOperator"),
        (r"`streambank job rescale [^`]*`", "RescaleStateOperator"),
        (r"add --file-sink DIR", "name it in `file_sinks`"),
        (
            r"say so(?: with|:) --file-sink (\S+)\.(?= |$)",
            r"name \1 in `file_sinks` of RestoreSavepointOperator.",
        ),
        (r"with --kafka\b", "by `kafka` of the operator"),
    )
)
"""Words of the command line in warnings and reasons, which have no code, and what stands for them here."""

_TO_ROCKSDB = (
    "Move the query to RocksDB, whose state is not in the heap: trigger <job>.stop with *Take a savepoint*, "
    "let MigrateStateOperator make another of it, and restore that. Until then, give it more memory, or "
    "more executors."
)

_REBUILD = "Rebuild the index of the repository from its packs, and clear this task."

HINTS = {
    "another-query": (
        "Save it under another job's name. If the job has begun again from nothing on purpose, set "
        "new_query of CreateSavepointOperator."
    ),
    "bad-signature": (
        "Let somebody with a shell look at it, and sign it anew if it is right: docs/howto/access.md."
    ),
    "bad-key-text": "Give the fields of one key as a JSON object.",
    "batch-begun": (
        "Start the job to go on there: trigger <job>.run. It repeats that batch, as any restart does. "
        "Or trigger <job>.restore with *Output written after the savepoint* set to accept: rows may be "
        "repeated then, or skipped for good by a sink that remembers batch ids."
    ),
    "batches-skipped": (
        "Trigger <job>.restore with *Output written after the savepoint* set to rollback. If the savepoint "
        "does not name the output, use RestoreSavepointOperator with `file_sinks`."
    ),
    "checkpoint-lost": (
        "Trigger <job>.restore. To begin from nothing, give the job a new name, a new checkpoint and a "
        "new output."
    ),
    "checkpoint-of-another-job": (
        "Declare another checkpoint. If the other job was only renamed, stop it by its old name, and "
        "trigger <job>.run with *Accept lost records*."
    ),
    "closure-changed": "Nothing that was moved is deleted. Report this with the log of the task.",
    "code-not-kept": (
        "Bring that application back, or change what the job declares, such as an argument: then that counts "
        "at the next start."
    ),
    "code-not-proven": (
        "If it is right, ask for the same upgrade again while its driver runs, declare that code, or give "
        "all workers the same signing keys and let somebody sign the records. Otherwise change what the job "
        "declares, such as an argument: then that counts at the next start."
    ),
    "copy-in-use": (
        "Stop the job on the copy first: StopStreamingJobOperator with `<job>@` and the name of the copy as "
        "its `job`."
    ),
    "copy-not-made": "Trigger `<job>.refresh.` with the name of the copy.",
    "drill-died": "To look at the log of the driver, trigger <job>.drill with *Keep the copy*.",
    "drill-differs": (
        "Look whether the application depends on more than its input, such as a clock, a random number or a "
        "table that has changed. To look at the copy, trigger <job>.drill with *Keep the copy*."
    ),
    "drill-timeout": (
        "Declare a longer drill.timeout, or trigger <job>.drill with fewer *Batches to execute again*. If "
        "the application takes so long to come up, so does a restore."
    ),
    "empty-policy": "Add a table [jobs.NAME.retention] with at least one rule, such as keep_last = 10.",
    "failed-over": (
        "The DAGs work on the active site. To let the job go on at the other one, trigger <job>.failover."
    ),
    "failing-over": (
        "Trigger <job>.failover again, which finishes it. With the other site in *Site*, it is given up."
    ),
    "failover-unfinished": (
        "Trigger <job>.failover, which finishes it. With the other site in *Site*, it is given up."
    ),
    "final-savepoint-failed": (
        "Trigger <job>.failover with *Last savepoint* off, to go on from the newest savepoint there is. To "
        "run the job where it was, trigger <job>.run."
    ),
    "fork-cannot-roll-back": (
        "Set *Output written after the savepoint* to refuse or accept. Let the fork write elsewhere: say "
        "where in *New output directories*, with a line for each."
    ),
    "generation-removed": "Go back by a savepoint: trigger <job>.restore.",
    "hdfs-backed": (
        "HDFS-backed state keeps its number of partitions. Migrating it to RocksDB can change the number."
    ),
    "hdfs-state-exceeds-heap": _TO_ROCKSDB,
    "header-missing": "Restore repository.json from a backup, or repair the repository from a replica.",
    "index-damaged": _REBUILD,
    "index-incomplete": _REBUILD,
    "inside-checkpoint": "Name a location outside of the checkpoint: nothing is written into a live one.",
    "kafka-not-declared": (
        "If they are yours, declare them in the job's [kafka] table: `bootstrap`, or `servers` for several "
        "clusters. Or name them once: `kafka` of the operator."
    ),
    "kafka-not-reachable": (
        "Name its servers: `kafka` of the operator, or `bootstrap` in the job's [kafka] table."
    ),
    "large-heap-state": _TO_ROCKSDB,
    "launched-elsewhere": (
        "Declare the job as it was launched, and trigger <job>.stop; then declare the new place. If the old "
        "place is gone, a user of the command line can break the lease: `job break`."
    ),
    "lease-held": (
        "Trigger <job>.stop first, which asks the cluster, or set *Stop the job if it runs*. A restore "
        "beside the running job takes both: *What becomes of the savepoint* (`mode`) is fork, and *Directory "
        "to restore into* (`into`) names where."
    ),
    "left-directory": (
        "Run PurgeQuarantineOperator for it once the query has committed another batch; until then "
        "UndoCompactionOperator brings its files back."
    ),
    "never-started": "Trigger <job>.run first.",
    "no-clean-policy": (
        "Add a table [jobs.NAME.generations] with rules such as keep = 2, or set keep of CleanJobOperator."
    ),
    "no-committed-batch": "Wait for its first batch: <job>.run shows how it is doing.",
    "no-declaration": (
        "Set the jobs file in the connection's extra `jobs_file`, as the operator's `jobs_file`, in the "
        "environment variable STREAMBANK_JOBS, or as [streambank] jobs in Airflow's configuration."
    ),
    "no-good-savepoint": (
        "Trigger <job>.savepoint with *Verification* set to full to see what is wrong. If the job has "
        "replicas, trigger <job>.restore with *Repository* set to nearest."
    ),
    "no-place-answers": "Bring the repository or one of its replicas back, and clear this task.",
    "no-repository": (
        "The first run of <job>.savepoint creates it; or name the directory of repository.json. If it is "
        "lost, trigger <job>.restore with *Repository* set to nearest, or a replica in it."
    ),
    "no-sibling": "Set `quarantine` of the operator.",
    "no-state": "The query keeps no state: there is nothing to compact or rescale.",
    "no-sink-known": (
        "Restore it with RestoreSavepointOperator and `file_sinks`, the output directories of the query: "
        "then they are compared, and rollback takes them back. If *Output written after the savepoint* is "
        "set to accept, a restore leaves the output as it is."
    ),
    "no-such-generation": "Look at the generations that the log of this task names.",
    "no-target": "Set `into` of the operator, or leave it out to restore the job's next generation.",
    "no-upgrade": "The records of the job have no upgrade that has started new code.",
    "no-way-back": (
        "Trigger <job>.run once with the old code, which keeps a copy of it; or trigger <job>.upgrade "
        "with *Go on without a way back*: if the new code fails, a person has to bring the old one back."
    ),
    "not-claimed": (
        "Go on with the restored checkpoint; unpin the savepoint to let retention decide about it."
    ),
    "not-expired": "It was swept for good, or never expired.",
    "not-hdfs-backed": "The state is in RocksDB already.",
    "bad-signing-key": (
        "Look at the file that the workers' environment variable STREAMBANK_SIGNING_KEYS names, or "
        "[streambank] signing_keys in Airflow's configuration: a key a line, in hex, the new one first."
    ),
    "not-confirmed": "Let somebody with a shell look at the records, and sign them: docs/howto/access.md.",
    "not-rehearsed": (
        "Trigger <job>.upgrade with *Go on without a rehearsal*: then whether the new code goes on with "
        "the job's state shows only when it has taken the place of the old one."
    ),
    "not-signed": (
        "Use another one. If you know where it comes from, let somebody with a shell verify and sign it: "
        "docs/howto/access.md."
    ),
    "not-stopped": "Trigger <job>.stop first.",
    "nothing-to-upgrade": ("Trigger <job>.run: it starts a stopped job with the code that is declared."),
    "object-damaged": "Use another savepoint, or repair this one from a replica.",
    "operation-in-progress": (
        "This task can be cleared when the operation has ended. Look for a run of the job's DAGs that "
        "is still going."
    ),
    "other-digest": "Name a replica that the ReplicateSavepointsOperator made.",
    "other-records": (
        "Set the jobs file of the job that is restored. If its records are lost, use a jobs file whose "
        "`control` is the location for the new ones."
    ),
    "other-savepoint": (
        "Two lines of the query finished the same batch, or a file is damaged. DiagnoseStreamingJobOperator "
        'looks at the checkpoint, VerifySavepointOperator with `level="full"` at the savepoint. If neither '
        "finds anything, look which line is the job's: the next batch of that one has another id."
    ),
    "pack-damaged": "Rebuild the index of the repository; the next sweep looks again.",
    "paths-not-shared": "Set `work` to a location that all machines see, such as s3://bucket/work.",
    "quarantine-purged": (
        "Finish it: run PurgeQuarantineOperator. The checkpoint does not need these files."
    ),
    "quarantine-unfinished": (
        "Bring everything back by UndoCompactionOperator, and compact again. Once the query has "
        "committed another batch, PurgeQuarantineOperator deletes it."
    ),
    "query-went-on": (
        "Its later output is valid. To go back anyway: trigger <job>.restore with *Output written after"
        " the savepoint* set to rollback."
    ),
    "record-damaged": "Use another one, or repair the repository from a replica that has it undamaged.",
    "records-of-another-place": (
        "Mount them at the path that is named if they are the same. Else let somebody with a shell look at "
        "them, and sign them if they were moved on purpose: docs/howto/access.md."
    ),
    "repair-encoding": (
        "Only rows that are stored as plain UnsafeRow can be changed. Remove the keys instead: declare "
        "compact.where, and trigger <job>.compact."
    ),
    "repair-key": "Change other columns of the value, or remove the key by EraseStateOperator.",
    "repair-part": (
        "Begin again with the right input, or remove the keys: declare compact.where, and trigger "
        "<job>.compact."
    ),
    "repository-damaged": "Take into another repository, and verify this one.",
    "records-in-repository": (
        "Trigger <job>.stop, and let somebody with a shell move them (docs/reference/jobs.md, under "
        "`Where the records lie`). docs/howto/access.md says which rights each place needs."
    ),
    "records-moving": (
        "Wait until it has ended. If it has broken off, let somebody with a shell finish it "
        "(docs/reference/jobs.md, under `Where the records lie`)."
    ),
    "query-id-lost": (
        "Trigger <job>.restore. Without a savepoint, bring the file back from a copy of the checkpoint. To "
        "begin from nothing, give the job a new name, a new checkpoint and a new output."
    ),
    "repository-lost": (
        "Mount it or bring it back, or copy a replica there. If it is lost for good, trigger <job>.restore: "
        "it begins new records, from the savepoints in the repository or in a replica. Only if there is no "
        "savepoint either, trigger <job>.run with *Accept lost records*."
    ),
    "savepoint-damaged": "Take the next batch meanwhile, and verify this savepoint.",
    "signs-of-life": (
        "Trigger <job>.stop and wait until nothing is written; or set `stopped` to False, which moves "
        "unfinished writes only."
    ),
    "no-versions": (
        "Bring it back from a replica, or from a backup. A bucket keeps what is deleted only from the moment "
        "on at which it has versioning, or Object Lock."
    ),
    "rows-counted-twice": (
        "Rewrite the state once more with this version: trigger <job>.compact, or run RescaleStateOperator. "
        "The counts are right from then on."
    ),
    "sink-changed": (
        "Let it write to the old sink. To move it on purpose: trigger <job>.stop with *Take a "
        "savepoint*, then trigger <job>.restore with *New output directories*; or give it a new "
        "checkpoint."
    ),
    "sink-not-saved": (
        "Trigger <job>.savepoint, whose savepoint has the log, and make the copy again; or name another "
        "savepoint."
    ),
    "restore-unfinished": (
        "Trigger <job>.restore for each query that is left, all but the last with *Start afterwards* off."
    ),
    "sinks-taken-back": (
        "Trigger <job>.restore with the same savepoint, and *Output written after the savepoint* set to"
        " rollback."
    ),
    "other-site-runs": "It ends by itself when it sees the records. Then trigger <job>.run again.",
    "site-moved": "Look at the runs of <job>.failover, and trigger it again when they have ended.",
    "site-not-fenced": (
        "If you know that no driver of the job runs there, trigger <job>.failover with *A site that is down*."
    ),
    "sites-disagree": (
        "Look which site has the right output, and trigger <job>.failover with that one in *Site*."
    ),
    "source-files-changed": (
        "Bring the files back as they were; restore a newer savepoint; or set *Input that cannot be read "
        "again* to accept, to compute with what they hold now."
    ),
    "spark-failed": (
        "If it ran out of memory, give it more in the connection of Spark or in the job's [spark]."
    ),
    "scratch-not-apart": "Declare drill.scratch of the job: a location that is apart.",
    "sink-log-not-retained": "Use a savepoint that names the sink, or a newer batch.",
    "not-this-sink": (
        "Name the directory that the query of the savepoint writes to, or use a savepoint that was taken "
        "since."
    ),
    "unknown-sink": "Name a sink that the plan shows; an output that the savepoint lacks in `file_sinks`.",
    "too-young": "Set `older_than_s` to 3600 or more; a write that pauses may still go on.",
    "uneven-state": (
        "Trigger <job>.sla with *Measure skew* for how uneven it is; docs/howto/skew.md says how to find "
        "the keys, and what to do about them."
    ),
    "unplanned-first-batch": (
        "While no driver runs, move these folders out of the checkpoint, leave metadata and sources, and "
        "trigger <job>.run: nothing of the query is committed, so nothing is lost. If its output has "
        "batches already, trigger <job>.restore instead."
    ),
    "which-job": "Set the job.",
}
"""Code of an error or a finding -> the hint in Airflow, where the engine's speaks of the command line."""

IN_OWN_DAGS = {
    "copy-not-made": "Run RefreshCopyOperator with the name of the copy.",
    "lease-held": (
        "Run StopStreamingJobOperator first, which asks the cluster. A restore beside the running job takes "
        'both `mode="fork"` and a directory in `into`.'
    ),
    "no-committed-batch": "Wait for its first batch, such as by BatchCommittedSensor.",
    "no-good-savepoint": (
        'Run VerifySavepointOperator with `level="full"` to see what is wrong. If the job has replicas, run '
        'RestoreSavepointOperator with `repository="nearest"`.'
    ),
    "restore-unfinished": (
        "Run RestoreSavepointOperator with `JOB/*` as its job again, or for each query that is left; then "
        "start the job."
    ),
}
"""The same where DAGs of one's own do it in another way than the job's DAGs."""


def hint_of(error: StreambankError, job: str | None = None, dag: object = None) -> str:
    """What to do about an error, as a task says it; arguments as for `hint_for`."""
    return hint_for(error.code, error.hint, job, dag)


def hint_for(code: str, hint: str, job: str | None = None, dag: object = None) -> str:
    """A hint in Airflow's words: that of an error, a finding, or a verdict.

    Args:
        hint: The engine's hint.
        job: The job whose DAGs are named; `<job>` stands for it where it is not known.
        dag: The DAG in which it is read; that of the task that runs here where it is left out.
    """
    own = is_own_dag(dag)
    # What follows the first line is quoted: the end of a driver's log.
    first, line, quoted = hint.partition("\n")
    if speaks_cli(first):
        found = by_fields(first)
        known = (IN_OWN_DAGS.get(code) if own else None) or HINTS.get(code)
        hint = known or (hint if speaks_cli(found) else found + line + quoted)
    return _spoken(hint, job, own=own)


def hint_of_code(code: str, job: str | None = None) -> str:
    """The hint of an error of which only the code is known; empty where no code has one here.

    Args:
        job: The job whose DAGs are named; `<job>` stands for it where it is not known.
    """
    own = is_own_dag()
    return _spoken((IN_OWN_DAGS.get(code) if own else None) or HINTS.get(code, ""), job, own=own)


def in_words(text: str, job: str | None = None, dag: object = None) -> str:
    """A sentence of the engine, such as a warning, as the task that runs here says it.

    Args:
        job: The job whose DAGs it names.
        dag: As for `hint_for`.
    """
    return _spoken(by_fields(text), job, own=is_own_dag(dag))


def by_fields(text: str) -> str:
    """The same with titles of form fields instead of the options of the command line that are the same."""

    def field(match: re.Match[str]) -> str:
        title, value = f"*{_OPTIONS[match[1]]}*", match[2]
        if not value or value == "DIR":
            return title
        return f"{title} with {value}" if "=" in value else f"{title} set to {value}"

    text = _OPTION.sub(field, text)
    for said, instead in _WORDS:
        text = said.sub(instead, text)
    return text


def in_data(value: Any, job: str | None = None) -> Any:
    """A result of the engine, or a part of a page, with what it says to people in Airflow's words.

    These are its `warnings` and `notes`, and what to do (`hint`, `cure`) beside each `code`. Nothing else is
    touched: names, places and lines of logs are what they are.

    Args:
        job: The job whose DAGs are named.
    """
    if isinstance(value, list | tuple):
        return [in_data(one, job) for one in value]
    if not isinstance(value, Mapping):
        return value
    found: dict[str, Any] = {}
    for name, one in value.items():
        if name in ("warnings", "notes") and isinstance(one, list | tuple):
            found[name] = [
                in_words(each, job) if isinstance(each, str) else in_data(each, job) for each in one
            ]
        elif name in ("hint", "cure") and isinstance(one, str) and isinstance(value.get("code"), str):
            found[name] = hint_for(value["code"], one, job)
        else:
            found[name] = in_data(one, job)
    return found


def is_own_dag(dag: object = None) -> bool:
    """Whether this is a task of a DAG that `build_dags` has not made; False where nothing says so.

    Args:
        dag: The DAG; that of the task that runs here where it is left out.
    """
    if dag is None:
        try:
            dag = getattr(get_current_context().get("task"), "dag", None)
        except (RuntimeError, ValueError):
            return False
    return dag is not None and TAG not in (getattr(dag, "tags", None) or ())


def _spoken(hint: str, job: str | None, *, own: bool) -> str:
    if own:
        hint = _by_arguments(hint, job)
    return hint.replace("<job>", job) if job else hint


def _by_arguments(hint: str, job: str | None) -> str:
    """The same for a DAG of one's own: operators instead of DAGs, arguments instead of fields."""
    names = "|".join(re.escape(one) for one in ("<job>", job) if one)
    dag = rf"`?(?:{names})\.({'|'.join(OPERATORS)})\b`?"
    hint = re.sub(rf"\b(?:unpause and )?([Tt])rigger {dag}", _run_it, hint)
    hint = re.sub(r"\btrigger it\b", "run it", hint)
    hint = re.sub(dag, lambda match: OPERATORS[match[1]], hint)
    hint = re.sub(rf"\*({_FIELD})\* to ({_CHOICES}) or ({_CHOICES})\b", _either, hint)
    # `set *Title* to X`, `*Title* set to X`, `*Title* is set to X`
    hint = re.sub(
        rf"\*({_FIELD})\*(?: is| set)* to ({_CHOICES})\b", lambda one: _argument(one[1], one[2]), hint
    )
    hint = re.sub(rf"\*({_FIELD})\* with ([^ ]+=[^ ]*\w)", lambda one: _argument(one[1], [one[2]]), hint)
    hint = re.sub(rf"\*({_FIELD})\* off\b", lambda one: _argument(one[1], False), hint)
    hint = re.sub(rf"\*({_FIELD})\*", lambda one: _argument(one[1]), hint)
    if "perator" not in hint:
        hint = re.sub(_ARGUMENT, lambda one: f"{one[0]} of {_OPERATOR_OF[one[1]]}", hint, count=1)
    return hint


def _run_it(match: re.Match[str]) -> str:
    return f"{'Run' if match[1] == 'T' else 'run'} {OPERATORS[match[2]]}"


def _either(match: re.Match[str]) -> str:
    return f"{_argument(match[1], match[2])} or {_argument(match[1], match[3])}"


def _argument(title: str, value: Any = None) -> str:
    name = FIELDS[title][1]
    if value is None:
        return f"`{name}=True`" if name in _SWITCHES else f"`{name}`"
    return f'`{name}="{value}"`' if isinstance(value, str) else f"`{name}={value}`"


_OPERATOR_OF = {name: OPERATORS[verb] for verb, name in FIELDS.values()}
_ARGUMENT = re.compile(rf"`({'|'.join(_OPERATOR_OF)})(?:=[^`]*)?`")


def speaks_cli(text: str) -> bool:
    """Whether a text names commands, options or variables of the command line."""
    return _OF_THE_COMMAND_LINE.search(text) is not None
