"""Every hint that an operator can raise is in Airflow's words: by code, for every place that raises one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from streambank.cleaning.left_directory import LeftDirectories, LeftDirectory
from streambank.core.errors import InputError, RefusedError, StorageError
from streambank.core.finding import Finding
from streambank.declaration.drill import DrillPolicy
from streambank.declaration.objectives import PROMISES
from streambank.declaration.savepoints import RestorePolicy
from streambank.declaration.state import CompactPolicy
from streambank.doctor.checks.left import check_left
from streambank.sla.judge.judge import UnreadableHistory
from streambank_airflow.dags.forms import daily, recovery, rewrite
from streambank_airflow.hints import (
    HINTS,
    IN_OWN_DAGS,
    OPERATORS,
    VERBS,
    fields,
    hint_for,
    hint_of,
    in_data,
    in_words,
    speaks_cli,
)
from tests.streambank_airflow.test_reference import arguments, classes
from tests.support.paths import ROOT

PROVIDER = ROOT / "provider"
ONLY_COMMAND_LINE = (
    "streambank/advice",
    "streambank/cli",
    "streambank/job/sign_records.py",
    "streambank_spark/commands",
    "streambank_spark/programs",
    "streambank_spark/runner",
)
"""What no operator runs in its own process."""


@dataclass(frozen=True)
class Raised:
    """One place that makes an error."""

    place: str
    code: str
    message: str
    hint: str


@cache
def sources() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(PROVIDER)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PROVIDER.rglob("*.py"))
    }


def modules() -> Iterator[tuple[str, ast.Module]]:
    """What an operator may run."""
    return ((name, tree) for name, tree in sources().items() if not name.startswith(ONLY_COMMAND_LINE))


def constants_of(tree: ast.Module) -> dict[str, str]:
    """Names of a module that stand for a text."""
    return {
        target.id: text(node.value, {})
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


@cache
def raised() -> tuple[Raised, ...]:
    return tuple(_raised())


def _raised() -> Iterator[Raised]:
    for name, tree in modules():
        constants = constants_of(tree)
        for node in ast.walk(tree):
            given = {word.arg: word.value for word in getattr(node, "keywords", [])}
            if isinstance(node, ast.Call) and "hint" in given and node.args:
                code = given.get("code")
                known = constants.get(code.id) if isinstance(code, ast.Name) else None
                known = str(code.value) if isinstance(code, ast.Constant) else known
                yield Raised(
                    f"{name}:{node.lineno}",
                    str(known),
                    *(text(one, {**constants, **hint_functions()}) for one in (node.args[0], given["hint"])),
                )


@cache
def found_by_doctor() -> tuple[Raised, ...]:
    """Findings of doctor, which the log of a task shows whole; `message` is cause and effect."""
    return tuple(_found_by_doctor())


def _found_by_doctor() -> Iterator[Raised]:
    for name, tree in modules():
        if not name.startswith(("streambank/doctor/", "streambank/checkpoint/inspection")):
            continue
        constants = constants_of(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                code, _, _, *said, hint = (text(one, constants) for one in node.args)
                yield Raised(f"{name}:{node.lineno}", code, " ".join(said), hint)


@cache
def hint_functions() -> dict[str, str]:
    """What functions return that find out a hint, by their names."""
    return {
        function.name: " ".join(
            text(node.value, {})
            for node in ast.walk(function)
            if isinstance(node, ast.Return) and node.value is not None
        )
        for tree in sources().values()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name.startswith("hint_of_")
    }


def text(node: ast.expr, known: Mapping[str, str]) -> str:
    """The literal parts of an expression, with `{}` for each value in it, and what its names stand for."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        found = known.get(node.func.id)
        if found is not None:
            return found
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text(part, known) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return " ".join(text(child, known) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


BOTH = {
    "mixed-pyspark": "pip's own options",
}
"""Codes of findings whose hint is one for both."""


def test_errors_are_found() -> None:
    assert len(raised()) > 250
    assert {"sink-would-lose-rows", "lease-held", "checkpoint-lost"} <= {one.code for one in raised()}


def test_what_an_operator_can_raise_has_a_hint_in_airflows_words() -> None:
    missing = [
        one for one in raised() if speaks_cli(hint_for(one.code, one.hint)) and "/fsspec/" not in one.place
    ]
    assert not missing, "\n".join(f"{one.place} {one.code}: {one.hint}" for one in missing)


def test_what_doctor_finds_has_a_hint_in_airflows_words() -> None:
    found = found_by_doctor()
    assert len(found) > 30
    assert {"hdfs-state-exceeds-heap", "sink-ahead"} <= {one.code for one in found if speaks_cli(one.hint)}
    missing = [one for one in found if speaks_cli(hint_for(one.code, one.hint)) and one.code not in BOTH]
    assert not missing, "\n".join(f"{one.place} {one.code}: {one.hint}" for one in missing)


APART = {
    "streambank/checkpoint/schema/key.py": "a hint of bad-key-text",
    "streambank/cleaning/left_directories.py": "the hint of left-directory is made of it",
    "streambank/control/signed.py": "what a signature is of",
    "streambank/doctor/checks/installation.py": "for a shell: pip, and the interpreter of the drivers",
    "streambank/doctor/checks/rows.py": "an option of a Spark program, for both",
    "streambank/doctor/diagnose.py": "of a checkpoint without a job",
    "streambank/doctor/subject.py": "of a checkpoint without a job",
    "streambank/recovery/sinks/tables.py": "a hint of sink-log-not-retained",
    "streambank/repository/signatures.py": "what a signature is of",
    "streambank/savepoint/sign.py": "a hint of not-signed",
    "streambank/storage/fsspec/errors.py": "an option of Hadoop's",
    "streambank_airflow/dags/forms/recovery.py": "it says where ids are listed, the task second",
    "streambank_airflow/hints.py": "what is looked for",
    "streambank_spark/failures.py": "a hint of spark-failed",
    "streambank_spark/rewrite/key_locations.py": "commands, given as such",
}
"""Modules with texts that name the command line and are no warning, with why."""


def _documented(tree: ast.Module) -> set[int]:
    bodies = (getattr(node, "body", None) for node in ast.walk(tree))
    lines = (line for body in bodies if isinstance(body, list) for line in body)
    return {id(line.value) for line in lines if isinstance(line, ast.Expr)}


def _said_otherwise(tree: ast.Module) -> Iterator[str]:
    """Every text of a module but documentation, hints and findings, which are looked at above."""
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    hints = [word.value for call in calls for word in call.keywords if word.arg == "hint"]
    hints += [call.args[-1] for call in calls if call.args and getattr(call.func, "id", "") == "Finding"]
    seen = _documented(tree) | {id(node) for hint in hints for node in ast.walk(hint)}
    seen |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        is_text = isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)
        if is_text and isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in seen:
            yield text(node, {})


def test_no_other_text_of_the_engine_names_the_command_line_in_airflow() -> None:
    """Warnings, notes, reasons: what is shown in a log, an XCom, an approval or a page without a code."""
    found = {
        (name, said)
        for name, tree in modules()
        for said in _said_otherwise(tree)
        if speaks_cli(said if name.startswith("streambank_airflow") else in_words(said))
        and not said.strip().startswith("--")
    }
    assert sum(speaks_cli(said) for _, tree in modules() for said in _said_otherwise(tree)) > len(found) + 10
    assert {name for name, _ in found} == APART.keys(), sorted(one for one in found if one[0] not in APART)


@pytest.mark.parametrize(
    ("said", "spoken"),
    [
        (
            "No sink is known: a restore cannot protect the output; add --file-sink DIR (near it is out)",
            "No sink is known: a restore cannot protect the output; name it in `file_sinks` (near it is out)",
        ),
        (
            "Restore b01 (1 h old): trigger a.restore in Airflow, or run `streambank restore b01 --job a "
            "--generation`.",
            "Restore b01 (1 h old): trigger a.restore.",
        ),
        (
            "Restore it first or together: `streambank job restore` does both with --with b, and in Airflow "
            "b.restore comes first (docs/howto/sinks.md).",
            "Restore it first or together: b.restore comes first (docs/howto/sinks.md).",
        ),
        (
            "The primary was not fenced. When it answers again: `streambank failover a --fence`. The job's "
            "driver at the standby does that, too.",
            "The primary was not fenced. The job's driver at the standby does that when it answers again.",
        ),
        (
            "If the query writes there, say so with --file-sink file:///a.b/out. Or restore another one.",
            "If the query writes there, name file:///a.b/out in `file_sinks` of RestoreSavepointOperator. Or "
            "restore another one.",
        ),
        ("so the upgrade needs --unrehearsed: x", "so the upgrade needs *Go on without a rehearsal*: x"),
        ("or stop it: `streambank job stop a`.", "or stop it: trigger a.stop."),
        ("`streambank doctor x` or `streambank doctor y` says", "DiagnoseStreamingJobOperator says"),
        (
            "To run it: `streambank job start a@b`.",
            "To run it: StartStreamingJobOperator with `a@b` as its `job`.",
        ),
        (
            "Restore it to `/x`, `--sink accept`.",
            "Restore it to `/x`, *Output written after the savepoint* set to accept.",
        ),
        ("give them to `--new-sink /a=/b`", "give them to *New output directories* with /a=/b"),
    ],
)
def test_a_warning_in_airflows_words(said: str, spoken: str) -> None:
    assert in_words(said) == spoken


def test_data_of_the_engine_says_its_warnings_in_airflows_words() -> None:
    result = {
        "job": "a",
        "warnings": ("add --file-sink DIR",),
        "queries": [{"notes": ["needs --unrehearsed: x"], "log": "app.py --sink accept"}],
        "error": {"code": "not-stopped", "hint": "Stop it: `streambank job stop a`."},
        "hint": "--sink accept",
    }
    assert in_data(result, "a") == {
        "job": "a",
        "warnings": ["name it in `file_sinks`"],
        "queries": [{"notes": ["needs *Go on without a rehearsal*: x"], "log": "app.py --sink accept"}],
        "error": {"code": "not-stopped", "hint": "Stop it: trigger a.stop."},
        "hint": "--sink accept",
    }


def test_the_advice_of_a_verdict_is_for_both() -> None:
    assert [one for one in PROMISES.values() if speaks_cli(one.advice)] == []
    assert not speaks_cli(UnreadableHistory("main", "It is damaged.").advice)


def test_no_message_names_an_option_of_the_command_line() -> None:
    found = [one for one in (*raised(), *found_by_doctor()) if speaks_cli(one.message)]
    assert not found, "\n".join(f"{one.place} {one.code}: {one.message}" for one in found)


@pytest.mark.parametrize("dag", ["generated", "own"])
def test_no_hint_of_airflow_speaks_of_the_command_line(dag: str) -> None:
    read_in = OWN if dag == "own" else GENERATED
    said = {code: hint_for(code, "Use `streambank x`.", dag=read_in) for code in (*HINTS, *IN_OWN_DAGS)}
    assert {code: hint for code, hint in said.items() if speaks_cli(hint)} == {}


def test_every_hint_is_needed() -> None:
    needed = {one.code for one in (*raised(), *found_by_doctor()) if speaks_cli(one.hint)}
    assert HINTS.keys() - needed == {"left-directory"}


@pytest.mark.parametrize("needed_by", ["", "an undo: the query has committed no batch since"])
def test_a_quarantine_that_is_left_goes_by_an_operator(needed_by: str) -> None:
    """Its hint is made of what removes it, so that no text of the code shows it."""
    purge = "streambank compact --job flights --purge /data/checkpoint.quarantine-x"
    left = LeftDirectory("quarantine", "main", "/data/x", None, 1, 1, True, needed_by, purge)
    (finding,) = check_left(LeftDirectories((left,), ()))
    assert isinstance(finding, Finding) and speaks_cli(finding.hint)
    assert "PurgeQuarantineOperator" in hint_for(finding.code, finding.hint)


def test_the_job_is_named() -> None:
    error = RefusedError(
        "No.", code="checkpoint-lost", hint="`streambank restore latest-good` brings it back."
    )
    assert hint_of(error, "orders") == "orders.restore brings it back."
    assert hint_of(error) == "<job>.restore brings it back."


@pytest.mark.parametrize(
    "hint", ["Look at the disk.", "Its log is a and ends:\nstreambank restore --job x", ""]
)
def test_other_hints_stay(hint: str) -> None:
    assert hint_of(StorageError("No.", code="checkpoint-lost", hint=hint)) == hint


def test_a_hint_of_an_unknown_code_stays() -> None:
    error = InputError("No.", code="of-another-version", hint="Use --quarantine-too DIR.")
    assert hint_of(error) == "Use --quarantine-too DIR."


def test_every_field_that_a_hint_names_is_in_a_form_under_that_title() -> None:
    several = (
        daily.run_form(),
        daily.stop_form(60.0),
        daily.savepoint_form("full"),
        daily.sla_form(),
        rewrite.compact_form((), CompactPolicy()),
        rewrite.rescale_form(()),
        recovery.restore_form((), RestorePolicy()),
        recovery.drill_form((), DrillPolicy(), ("/r",)),
        recovery.upgrade_form(3),
        recovery.failover_form("refuse", "refuse"),
    )
    titles = {field.schema["title"] for form in several for field in form.values()}
    named = {title for hint in HINTS.values() for title in re.findall(r"\*([^*]+)\*", hint)}
    named |= {field.title for field in fields().values()}
    assert len(named) > 15
    assert named <= titles


def test_lost_records_are_restored_before_they_are_given_up() -> None:
    hint = HINTS["repository-lost"]
    assert hint.index("<job>.restore") < hint.index("--fresh-start")


OWN: Any = SimpleNamespace(tags=set(), dag_id="nightly")
GENERATED: Any = SimpleNamespace(tags={"streambank", "orders"}, dag_id="orders.restore")


def all_hints() -> set[tuple[str, str]]:
    """Each hint that a task may show, by its code, with values in it as a driver's are."""
    engine = {(one.code, one.hint.replace("{}", "x")) for one in (*raised(), *found_by_doctor()) if one.hint}
    return engine | {(code, "Use `streambank x`.") for code in HINTS}


def test_every_hint_names_operators_and_arguments_in_a_dag_of_ones_own() -> None:
    operators = {found.__name__: found for _, found in classes("operators", BaseOperator)}
    sensors = {found.__name__ for _, found in classes("sensors", BaseOperator)}
    assert {verb.operator for verb in VERBS.values()} <= operators.keys()
    for field in fields().values():
        assert field.argument in arguments(operators[OPERATORS[field.verb]]), field.title
    titles = {field.title for field in fields().values()}
    titles |= {"Verification", "Stop the job if it runs", "Start afterwards"}
    own = 0
    for code, hint in sorted(all_hints()):
        said = hint_for(code, hint, "orders", OWN)
        assert not re.search(rf"orders\.({'|'.join(OPERATORS)})\b", said), said
        assert not any(f"*{title}*" in said for title in titles), said
        assert {one for one in re.findall(r"\b[A-Z]\w+Operator\b", said)} <= operators.keys(), said
        assert {one for one in re.findall(r"\b[A-Z]\w+Sensor\b", said)} <= sensors, said
        own += said != hint_for(code, hint, "orders", GENERATED)
    assert own > 50


def test_a_generated_dag_keeps_the_words_of_its_forms() -> None:
    hint = "Go back: `streambank restore --sink rollback`."
    restore = hint_for("query-went-on", hint, "orders", GENERATED)
    assert "trigger orders.restore with *Output written after the savepoint* set to rollback" in restore
    assert restore == hint_for("query-went-on", hint, "orders"), "so do alerts, and the page"


@pytest.mark.parametrize(
    ("code", "begins", "generated", "own"),
    [
        (
            "sinks-taken-back",
            "Finish it",
            "Finish it: trigger x.failover with *Site* set to x. Then fail over to the x, which restores "
            "there.",
            'Finish it: run FailoverStreamingJobOperator with `to="x"`. Then fail over to the x, which '
            "restores there.",
        ),
        (
            "query-went-on",
            "It does not need",
            "It does not need what was moved: let PurgeQuarantineOperator delete it. To go back, restore a "
            "savepoint.",
            "",
        ),
        (
            "not-signed",
            "Look at it",
            "Look at it. If it is right, sign it: `streambank job sign-records` (in a shell; with several "
            "keys: `--unsigned`).",
            "",
        ),
        (
            "checkpoint-of-another-job",
            "Stop that job",
            "Stop that job first, with its own jobs file, or declare another checkpoint. If you know that it "
            "is dead: `streambank job break x --why TEXT` (in a shell), with that jobs file.",
            "",
        ),
    ],
)
def test_a_hint_is_that_of_the_place_and_not_of_the_code(
    code: str, begins: str, generated: str, own: str
) -> None:
    """Another place that raises the same code has another way out."""
    hints = {one.hint.replace("{}", "x") for one in raised() if one.code == code}
    (hint,) = {one for one in hints if one.startswith(begins)}
    assert len(hints) > 1
    assert hint_for(code, hint, "orders", GENERATED) == generated
    assert hint_for(code, hint, "orders", OWN) == (own or generated)


@pytest.mark.parametrize(
    ("command", "generated", "own"),
    [
        ("job stop a", "trigger a.stop", "run StopStreamingJobOperator"),
        ("job stop a/q", "trigger a.stop", "run StopStreamingJobOperator"),
        (
            "job stop a@b",
            "StopStreamingJobOperator with `a@b` as its `job`",
            "StopStreamingJobOperator with `a@b` as its `job`",
        ),
        (
            "drill --keep",
            "trigger orders.drill with *Keep the copy*",
            "run RunDrillOperator with `keep=True`",
        ),
        (
            "failover a --no-final-savepoint",
            "trigger a.failover with *Last savepoint* off",
            "run FailoverStreamingJobOperator with `final_savepoint=False`",
        ),
        ("fork a b", "trigger a.refresh.b", "run RefreshCopyOperator"),
        ("restore SAVEPOINT --job a --generation", "trigger a.restore", "run RestoreSavepointOperator"),
        (
            "restore b1 --job a --sink accept",
            "trigger a.restore with *Savepoint* set to b1 and *Output written after the savepoint* set to "
            "accept",
            'run RestoreSavepointOperator with `savepoint="b1"` and `sink="accept"`',
        ),
        ("state migrate --partitions 8", "run MigrateStateOperator with `partitions=8`", ""),
        ("unpin", "run PinSavepointOperator with `pinned=False`", ""),
        ("job status a", "the job's page", ""),
        ("list", "the job's page", ""),
        ("list --expired", "`streambank list --expired` (in a shell)", ""),
        ("upgrade a --declared", "`streambank upgrade a --declared` (in a shell)", ""),
        ("reindex", "`streambank reindex` (in a shell)", ""),
    ],
)
def test_a_command_in_airflows_words(command: str, generated: str, own: str) -> None:
    hint = f"Do it: `streambank {command}`."
    assert hint_for("some-code", hint, "orders", GENERATED) == f"Do it: {generated}."
    assert hint_for("some-code", hint, "orders", OWN) == f"Do it: {own or generated}."
    again = hint_for("some-code", f"Do it: {generated}.", "orders", GENERATED)
    assert again == f"Do it: {generated}.", "what is in Airflow's words stays"


@pytest.mark.parametrize(
    ("hint", "generated", "own"),
    [
        (
            "--sink rollback sets them; --sink accept restores anyway.",
            "*Output written after the savepoint* set to rollback sets them; *Output written after the "
            "savepoint* set to accept restores anyway.",
            '`sink="rollback"` of RestoreSavepointOperator sets them; `sink="accept"` restores anyway.',
        ),
        (
            "--new-sink file:///out=DIR gives a new directory a log.",
            "*New output directories* with file:///out=DIR gives a new directory a log.",
            "`new_sinks=['file:///out=DIR']` of RestoreSavepointOperator gives a new directory a log.",
        ),
        (
            "Restore a newer savepoint, or use `--source accept` to go on.",
            "Restore a newer savepoint, or use *Input that cannot be read again* set to accept to go on.",
            'Restore a newer savepoint, or use `source="accept"` of RestoreSavepointOperator to go on.',
        ),
    ],
)
def test_the_ways_out_that_the_engine_found_are_kept_in_their_order(
    hint: str, generated: str, own: str
) -> None:
    assert hint_for("sink-would-lose-rows", hint, "orders", GENERATED) == generated
    assert hint_for("sink-would-lose-rows", hint, "orders", OWN) == own
    assert in_words(hint, "orders", OWN) == own, "of a warning, too"


def test_a_job_that_does_not_run_is_not_unpaused_in_a_dag_of_ones_own() -> None:
    assert in_words("Unpause and trigger `<job>.run`, or wait.", "orders", OWN) == (
        "Run StartStreamingJobOperator, or wait."
    )


def test_what_a_crash_loop_says_names_operators_in_a_dag_of_ones_own() -> None:
    text = "Hint: repair the cause and trigger orders.run again, restore the savepoint with orders.restore."
    assert in_words(text, "orders", OWN) == (
        "Hint: repair the cause and run StartStreamingJobOperator again, restore the savepoint with "
        "RestoreSavepointOperator."
    )
