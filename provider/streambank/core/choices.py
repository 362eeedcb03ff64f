"""What can be chosen by name, each list of choices once: for the command line, forms and declarations.

A value is checked by `streambank.core.errors.check_choice`.
"""

from __future__ import annotations

from typing import Literal, get_args

SinkChoice = Literal["refuse", "rollback", "rollback-accept", "accept"]
"""Of a restore: where rows would be lost or repeated in the output."""
ROLLBACKS: tuple[SinkChoice, ...] = ("rollback", "rollback-accept")
"""Those that take output back; `rollback-accept` also where files of a file sink are gone, which stay so."""
SINK_CHOICES: tuple[SinkChoice, ...] = get_args(SinkChoice)
NO_SINK = "not-known"
"""Kind of the sink of a savepoint that names none, and how it is chosen for."""

SourceChoice = Literal["refuse", "accept"]
"""Of a restore and a refresh: where Kafka no longer has what the query would read next, or cannot be asked,
where files are gone that it would read again, or a source gives no row twice."""
SOURCE_CHOICES: tuple[SourceChoice, ...] = get_args(SourceChoice)

RestoreMode = Literal["no-claim", "claim", "fork"]
"""Of a restore: what becomes of the savepoint, and of the query id."""
RESTORE_MODES: tuple[RestoreMode, ...] = get_args(RestoreMode)

ClosureKind = Literal["safe", "minimal"]
"""How much of a checkpoint a savepoint holds."""
CLOSURE_KINDS: tuple[ClosureKind, ...] = get_args(ClosureKind)

VerifyLevel = Literal["quick", "full"]
"""How deep a verification of one savepoint looks."""
VERIFY_LEVELS: tuple[VerifyLevel, ...] = get_args(VerifyLevel)

DeepLevel = Literal["quick", "full", "deep"]
"""The same with Spark at hand, which opens the state."""

Verification = Literal["none", "quick", "full", "sampled"]
"""What is done after a take; `sampled` hashes a share of all savepoints."""
VERIFICATIONS: tuple[Verification, ...] = get_args(Verification)

Expressions = Literal["declared", "any"]
"""Which conditions a form takes: only what the job declares, or whatever somebody types there."""

ExistingRows = Literal["replace", "keep", "overwrite"]
"""What becomes of rows of state that are there where others are made from a table: all go, they win, or the
table wins."""
EXISTING_ROWS: tuple[ExistingRows, ...] = get_args(ExistingRows)

TableFormat = Literal["parquet", "json", "csv", "orc", "avro", "delta"]
"""Formats of a table from which state is made."""
TABLE_FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)

LockMode = Literal["governance", "compliance"]
"""Of a lock: `governance` can be ended by a special permission before its date, `compliance` cannot."""
LOCK_MODES: tuple[LockMode, ...] = get_args(LockMode)

WorkPlace = Literal["auto", "here", "spark"]
"""Where files are copied, hashed or written."""

Compare = Literal["none", "counts", "values"]
"""What of output and state new code has to compute as the old one: nothing, as many rows, or the same."""

Severity = Literal["warn", "breach"]
"""How bad it is that an objective is missed."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

OnBreach = Literal["fail", "warn", "report"]
"""What a check does about an objective that is broken."""
