"""What to do about an error, in Airflow's words: DAGs, form fields, operators and arguments.

The engine's hints name verbs and options of the command line, which nobody has on a task's page. Each of them
is said as what does the same in Airflow, so that no way out is lost that the engine has found for this very
case. What only the command line does stays, and says that it needs a shell. A few hints, which say more in
Airflow than that, are replaced by a text for the error's code.

All of this speaks of the DAGs that `build_dags` makes. In the task of another DAG there are no such DAGs and
forms: there the same hint names operators and their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from airflow.sdk import get_current_context

from streambank.core.errors import StreambankError
from streambank.core.options import flag_of, options_of
from streambank.core.verb_options import (
    SINK,
    SOURCE,
    DrillOptions,
    FailoverOptions,
    SlaOptions,
    StartOptions,
    StopOptions,
    UpgradeOptions,
)
from streambank_airflow.dag_names import is_tagged


class Verb(NamedTuple):
    """What does in Airflow what a verb of the command line does.

    Attributes:
        dag: Which of a job's DAGs, if one does.
        of: What the verb's first argument names.
        says: Options that the verb stands for by itself.
    """

    operator: str
    dag: str = ""
    of: Literal["job", "savepoint", "other"] = "other"
    says: tuple[str, ...] = ()


VERBS = {
    "compact": Verb("CompactCheckpointOperator"),
    "doctor": Verb("DiagnoseStreamingJobOperator"),
    "drill": Verb("RunDrillOperator", "drill", "job"),
    "failover": Verb("FailoverStreamingJobOperator", "failover", "job"),
    "fork": Verb("RefreshCopyOperator", "refresh", "job"),
    "job clean": Verb("CleanJobOperator", of="job"),
    "job rescale": Verb("RescaleStateOperator", "rescale", "job"),
    "job restore": Verb("RestoreSavepointOperator", "restore", "job"),
    "job savepoint": Verb("CreateSavepointOperator", "savepoint", "job"),
    "job start": Verb("StartStreamingJobOperator", "run", "job"),
    "job stop": Verb("StopStreamingJobOperator", "stop", "job"),
    "repair": Verb("RepairSavepointsOperator"),
    "replicate": Verb("ReplicateSavepointsOperator"),
    "rescale": Verb("RescaleStateOperator", "rescale"),
    "restore": Verb("RestoreSavepointOperator", "restore", "savepoint"),
    "skew": Verb("CheckSlaOperator", "sla", says=("--skew",)),
    "sla": Verb("CheckSlaOperator", "sla"),
    "state compact": Verb("CompactStateOperator", "compact"),
    "state erase": Verb("EraseStateOperator"),
    "state migrate": Verb("MigrateStateOperator"),
    "state rescale": Verb("RescaleStateOperator", "rescale"),
    "take": Verb("CreateSavepointOperator", "savepoint"),
    "undelete": Verb("UndeleteSavepointOperator"),
    "unpin": Verb("PinSavepointOperator", says=("--pinned", "False")),
    "upgrade": Verb("UpgradeStreamingJobOperator", "upgrade", "job"),
    "verify": Verb("VerifySavepointOperator"),
}
"""Verb of the command line -> what does it in Airflow. A person with a shell does the others."""
OPERATORS = {verb.dag: verb.operator for verb in VERBS.values() if verb.dag}
"""Verb of a job's DAG -> the operator that does it in a DAG of one's own."""
WORKS = {operator: dag for dag, operator in OPERATORS.items()} | {
    "BootstrapStateOperator": "bootstrap",
    "CompactCheckpointOperator": "compact",
    "KeepStreamingJobRunningOperator": "run",
    "RestartStreamingJobOperator": "run",
    "RestoreStreamingJobOperator": "restore",
    "TransformStateOperator": "transform",
}
"""Operator -> the verb of the DAG that does the same."""
_ON_THE_PAGE = re.compile(r"list|job status( [^ -][^ ]*)?")
"""Commands that show what the job's page shows."""
_ALWAYS = frozenset({"all", "generation"})
"""Options that say nothing there: an operator is of a job, and restores it into its next generation."""


class Field(NamedTuple):
    """A field of the form of one of a job's DAGs, an argument of its operator, and an option.

    Attributes:
        value: What the option says of a switch.
    """

    verb: str
    title: str
    argument: str
    flag: str
    value: str = ""


_FIELDS = (
    Field("restore", SINK.title, "sink", "sink"),
    Field("restore", SOURCE.title, "source", "source"),
    Field("restore", "What becomes of the savepoint", "mode", "mode"),
    Field("restore", "Directory to restore into", "into", "into"),
    Field("restore", "New output directories", "new_sinks", "new-sink"),
    Field("restore", "Repository", "repository", "from"),
    Field("restore", "Savepoint", "savepoint", "savepoint"),
    Field("rescale", "Partitions", "partitions", "partitions"),
)
_FORMS = {
    "drill": DrillOptions,
    "failover": FailoverOptions,
    "run": StartOptions,
    "sla": SlaOptions,
    "stop": StopOptions,
    "upgrade": UpgradeOptions,
}


@cache
def fields() -> dict[tuple[str, str], Field]:
    """The fields that a hint may name, by DAG and option; by the option alone the first that has it."""
    found = {(field.verb, field.flag): field for field in (*_FIELDS, *_of_forms())}
    return {("", field.flag): field for field in reversed(found.values())} | found


def _of_forms() -> Iterator[Field]:
    for verb, options in _FORMS.items():
        for option in options_of(options):
            if option.option is not None and (title := option.option.title):
                flag, switch = flag_of(option).removeprefix("--"), option.kind is bool
                yield Field(verb, title, option.name, flag, "True" if switch else "")
                if switch:
                    yield Field(verb, title, option.name, f"no-{flag}", "False")


_ARGUMENTS = {
    "file-sink": "file_sinks",
    "job": "job",
    "jobs": "jobs_file",
    "keep": "keep",
    "keep-daily": "keep_daily",
    "keep-last": "keep_last",
    "new-query": "new_query",
    "older-than": "older_than_s",
    "partitions": "partitions",
    "pinned": "pinned",
    "provider": "provider",
    "purge": "PurgeQuarantineOperator",
    "quarantine": "quarantine",
    "scratch": "scratch",
    "stopped": "stopped",
    "undo": "UndoCompactionOperator",
    "work": "work",
}
"""Option that no form has -> the argument of an operator, or the operator."""
_PLACEHOLDERS = frozenset(
    ("DIR", "DIRECTORY", "FILE", "HOST:PORT", "JOB", "LOCATION", "N", "NAME", "OLD=NEW", "SAVEPOINT", "SITE")
)
"""What a hint says where a person chooses."""
_IN_SENTENCES = frozenset({"sink", "source", "mode", "into", "new-sink", "unrehearsed"})
"""Options that are looked for in any sentence. In one of an application `--job` may be its own."""
_CHOICES = "refuse|rollback-accept|rollback|accept|fork|no-claim|claim|full|nearest|primary|standby"
_VALUE = (
    rf"(?:{_CHOICES}|[0-9]+[a-z]?|[^ `]+=[^ `]*\w|[A-Z]+(?:[:=][A-Z]+)*|(?:[a-z0-9]+:/)?/[^ `]*\w)(?![\w-])"
)
_OPTION = re.compile(rf"`?--(?P<flag>[a-z]+(?:-[a-z]+)*)(?: (?P<value>{_VALUE}))?`?")
_COMMAND = re.compile(r"(?P<lead>: )?`streambank (?P<command>[^`]+)`(?! \(in a shell)")
_FOR_A_SHELL = re.compile(r"(`streambank [^`]*` \(in a shell[^)]*\))")
_OF_THE_COMMAND_LINE = re.compile(r"(?<![\w-])(?:streambank [a-z]+|--[a-z])")

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
        (r", or `streambank job (?:start|stop) [^`]+`", ""),
        (r"(`streambank doctor [^`]+`) or `streambank doctor [^`]+`", r"\1"),
        (r"(`streambank job sign-records`) \((with several keys: `--unsigned`)\)", r"\1 (in a shell; \2)"),
        (r"(`streambank repair`) this one", r"run \1 to bring this one back"),
        (r"` or `state rescale`", "` or `streambank state rescale`"),
        (r"add --file-sink DIR", "name it in `file_sinks`"),
        (
            r"say so(?: with|:) --file-sink (\S+)\.(?= |$)",
            r"name \1 in `file_sinks` of RestoreSavepointOperator.",
        ),
        (r"--kafka HOST:PORT, `kafka` of an Airflow operator", "`kafka` of the operator"),
        (r"with --kafka\b", "by `kafka` of the operator"),
        (r" \(--quiet\)", ""),
        (r"the output of --dry-run --json", "the log of the task"),
    )
)
"""Words about the command line that are more than a command or an option, and what stands for them here."""

HINTS = {
    "bad-signing-key": (
        "Look at the file that the workers' environment variable STREAMBANK_SIGNING_KEYS names, or "
        "[streambank] signing_keys in Airflow's configuration: a key a line, in hex, the new one first."
    ),
    "batches-skipped": (
        "Trigger <job>.restore with --sink rollback. If the savepoint does not name the output, use "
        "RestoreSavepointOperator with `file_sinks`."
    ),
    "code-not-kept": (
        "Bring that application back, or change what the job declares, such as an argument: then that counts "
        "at the next start."
    ),
    "code-not-proven": (
        "If it is right, ask for the same upgrade again while its driver runs, declare that code, or give "
        "all workers the same signing keys and let somebody sign the records. Otherwise change what the job "
        "declares, such as an argument: then that counts at the next start."
    ),
    "drill-timeout": (
        "Declare a longer drill.timeout, or trigger <job>.drill with fewer --batches. If the application "
        "takes so long to come up, so does a restore."
    ),
    "empty-policy": "Add a table [jobs.NAME.retention] with at least one rule, such as keep_last = 10.",
    "lease-held": (
        "Trigger <job>.stop first, which asks the cluster, or set *Stop the job if it runs*. A restore "
        "beside the running job takes both: *What becomes of the savepoint* (`mode`) is fork, and *Directory "
        "to restore into* (`into`) names where."
    ),
    "left-directory": (
        "Run PurgeQuarantineOperator for it once the query has committed another batch; until then "
        "UndoCompactionOperator brings its files back."
    ),
    "no-declaration": (
        "Set the jobs file in the connection's extra `jobs_file`, as the operator's `jobs_file`, in the "
        "environment variable STREAMBANK_JOBS, or as [streambank] jobs in Airflow's configuration; or "
        "declare the job in the DAG, as the operator's `declaration`."
    ),
    "no-good-savepoint": (
        "Trigger <job>.savepoint with *Verification* set to full to see what is wrong. If the job has "
        "replicas, trigger <job>.restore with --from nearest."
    ),
    "no-way-back": (
        "Trigger <job>.run once with the old code, which keeps a copy of it; or trigger <job>.upgrade with "
        "--no-way-back: if the new code fails, a person has to bring the old one back."
    ),
    "no-place-answers": "Bring the repository or one of its replicas back, and clear this task.",
    "no-repository": (
        "The first run of <job>.savepoint creates it; or name the directory of repository.json. If it is "
        "lost, trigger <job>.restore with --from nearest, or a replica in it."
    ),
    "no-sink-known": (
        "Restore it with RestoreSavepointOperator and `file_sinks`, the output directories of the query: "
        "then they are compared, and rollback takes them back. A restore with --sink accept leaves the "
        "output as it is."
    ),
    "no-target": "Set `into` of the operator, or leave it out to restore the job's next generation.",
    "operation-in-progress": (
        "This task can be cleared when the operation has ended. Look for a run of the job's DAGs that is "
        "still going."
    ),
    "other-savepoint": (
        "Two lines of the query finished the same batch, or a file is damaged. DiagnoseStreamingJobOperator "
        'looks at the checkpoint, VerifySavepointOperator with `level="full"` at the savepoint. If neither '
        "finds anything, look which line is the job's: the next batch of that one has another id."
    ),
    "other-site-runs": "It ends by itself when it sees the records. Then trigger <job>.run again.",
    "repair-encoding": (
        "Only rows that are stored as plain UnsafeRow can be changed. Remove the keys instead: declare "
        "compact.where, and trigger <job>.compact."
    ),
    "repair-part": (
        "Begin again with the right input, or remove the keys: declare compact.where, and trigger "
        "<job>.compact."
    ),
    "repository-lost": (
        "Mount it or bring it back, or copy a replica there. If it is lost for good, trigger <job>.restore: "
        "it begins new records, from the savepoints in the repository or in a replica. Only if there is no "
        "savepoint either, trigger <job>.run with --fresh-start."
    ),
    "restore-unfinished": (
        "Trigger <job>.restore for each query that is left, all but the last with *Start afterwards* off."
    ),
    "signs-of-life": (
        "Trigger <job>.stop and wait until nothing is written; or set `stopped` to False, which moves "
        "unfinished writes only."
    ),
    "site-moved": "Look at the runs of <job>.failover, and trigger it again when they have ended.",
    "spark-failed": (
        "If it ran out of memory, give it more in the connection of Spark or in the job's [spark]."
    ),
}
"""Code of an error or a finding -> the hint, where more can be done in Airflow than the engine's says.

Options stand for fields of forms and for arguments, as in the engine's."""

IN_OWN_DAGS = {
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
        known = (IN_OWN_DAGS.get(code) if own else None) or HINTS.get(code)
        first, line, quoted = (known, "", "") if known else (first, line, quoted)
        hint = _Words(own).of(first) + line + quoted
    return _named(hint, job, own=own)


def in_words(text: str, job: str | None = None, dag: object = None) -> str:
    """A sentence of the engine, such as a warning, as the task that runs here says it.

    Args:
        job: The job whose DAGs it names.
        dag: As for `hint_for`.
    """
    own = is_own_dag(dag)
    return _named(_Words(own, _IN_SENTENCES).of(text), job, own=own)


@dataclass
class _Words:
    """What Airflow has in place of commands and options; `<job>` stands for the name of a job.

    Attributes:
        own: Whether it is read in a DAG of one's own, which has operators instead of a job's DAGs and forms.
        flags: The options that are looked for outside of commands; None for all.
        names_operator: Whether the sentence says whose argument it is.
    """

    own: bool = False
    flags: frozenset[str] | None = None
    names_operator: bool = False

    def of(self, text: str) -> str:
        for said, instead in _WORDS:
            text = said.sub(instead, text)
        text = _COMMAND.sub(self._command, text)
        parts = _FOR_A_SHELL.split(text)  # commands for a shell keep their options
        self.names_operator = bool(re.search(rf"perator\b|<job>\.(?:{'|'.join(OPERATORS)})\b", text))
        parts[::2] = [_OPTION.sub(self._option, part) for part in parts[::2]]
        return "".join(parts)

    def _command(self, match: re.Match[str]) -> str:
        lead, command = match["lead"] or "", match["command"]
        if _ON_THE_PAGE.fullmatch(command):
            begins = not lead and match.string[: match.start()].rstrip()[-1:] in ("", ".")
            return f"{lead}{'The' if begins else 'the'} job's page"
        words = command.split()
        size = 2 if " ".join(words[:2]) in VERBS else 1
        verb = VERBS.get(" ".join(words[:size]))
        read = None if verb is None else self._read(verb, words[size:])
        if verb is None or read is None:
            return f"{lead}`streambank {command}` (in a shell)"
        named, job, said = read
        does = verb.operator
        if "@" in job:
            said.append(f"`{job}` as its `job`")
        elif self.own or not verb.dag:
            lead = lead and f"{lead}run "
        else:
            copy = f".{named[1] if len(named) > 1 else '<copy>'}" if verb.dag == "refresh" else ""
            does = f"{job.partition('/')[0]}.{verb.dag}{copy}"
            lead = lead and f"{lead}trigger "
        return f"{lead}{does}{' with ' if said else ''}{' and '.join(said)}"

    def _read(self, verb: Verb, words: Sequence[str]) -> tuple[list[str], str, list[str]] | None:
        """What a command names, its job, and its options as Airflow says them; None where it lacks one."""
        named: list[str] = []
        said: list[str] = []
        job = ""
        rest = iter([*verb.says, *words])
        for word in rest:
            flag = word.removeprefix("--")
            if flag == word:
                named.append(word)
            elif flag == "job":
                job = next(rest, "")
            elif (field := fields().get((verb.dag, flag))) is not None and verb.dag:
                said.append(self._field(field, field.value or next(rest, "")))
            elif not verb.dag and flag in _ARGUMENTS:
                said.append(_argument(_ARGUMENTS[flag], next(rest, "")))
            elif flag not in _ALWAYS:
                return None
        if named and verb.of == "job":
            job = named[0]
        if named and verb.of == "savepoint" and named[0] not in {"latest-good", *_PLACEHOLDERS}:
            said.insert(0, self._field(fields()["restore", "savepoint"], named[0]))
        return named, "<job>" if not job or job in _PLACEHOLDERS else job, said

    def _option(self, match: re.Match[str]) -> str:
        flag, value = match["flag"], match["value"] or ""
        if self.flags is not None and flag not in self.flags:
            return match[0]
        if flag in _ARGUMENTS:
            return _argument(_ARGUMENTS[flag], value)
        field = fields().get(("", flag))
        if field is None:
            return match[0]
        said = self._field(field, field.value or value)
        if self.own and not self.names_operator:
            self.names_operator = True
            said += f" of {OPERATORS[field.verb]}"
        return said

    def _field(self, field: Field, value: str) -> str:
        """A field that is filled in, or its argument."""
        if self.own:
            return _argument(field.argument, value)
        if not value or value == "True" or value in _PLACEHOLDERS:
            return f"*{field.title}*"
        how = "off" if value == "False" else f"with {value}" if "=" in value else f"set to {value}"
        return f"*{field.title}* {how}"


def _argument(name: str, value: str) -> str:
    if name.endswith("Operator"):
        return name
    if not value or value in _PLACEHOLDERS:
        return f"`{name}`"
    if name == "file_sinks":
        return f"{value} in `file_sinks`"
    if value in ("True", "False") or value.isdecimal():
        return f"`{name}={value}`"
    return f"`{name}={[value]}`" if "=" in value else f'`{name}="{value}"`'


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
    if dag is None:
        return False
    return not is_tagged(str(getattr(dag, "dag_id", "")), getattr(dag, "tags", None) or ())


def _named(hint: str, job: str | None, *, own: bool) -> str:
    """The same with the name of the job; in a DAG of one's own with operators instead of its DAGs."""
    if own:
        names = "|".join(re.escape(one) for one in ("<job>", job) if one)
        dag = rf"`?(?:{names})\.({'|'.join(OPERATORS)})\b(?!\.\w)`?"
        hint = re.sub(rf"\b(?:([Uu])npause and )?([Tt])rigger {dag}", _run_it, hint)
        hint = re.sub(r"\btrigger it\b", "run it", hint)
        hint = re.sub(dag, lambda match: OPERATORS[match[1]], hint)
    return hint.replace("<job>", job) if job else hint


def _run_it(match: re.Match[str]) -> str:
    return f"{'Run' if (match[1] or match[2]).isupper() else 'run'} {OPERATORS[match[3]]}"


def speaks_cli(text: str) -> bool:
    """Whether a text names commands or options, and does not say that they need a shell."""
    return _OF_THE_COMMAND_LINE.search(_FOR_A_SHELL.sub("", text)) is not None
