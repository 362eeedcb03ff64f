"""`state validate --repair`: a savepoint made from another one, in which the broken rows keep their rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from streambank.repository.repository import Repository
from streambank_spark.rewrite.derive import Derived, Say, derive
from streambank_spark.rewrite.repair import Assignment, mend, samples
from streambank_spark.rewrite.row_patch import Mended
from streambank_spark.state.staging import Workshop
from streambank_spark.state.state import QueryState
from streambank_spark.state.validate import Judged, Rule, validate_state

OPERATION = "repair"


@dataclass(frozen=True, slots=True)
class Repair:
    """What becomes of one part.

    Attributes:
        operator: The stateful operator's id.
        part: The part.
        rows: How many rows get another value.
        samples: Some of them: `partition`, `key`, `before`, `after`.
    """

    operator: int
    part: str
    rows: int
    samples: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "operator": self.operator,
            "part": self.part,
            "rows": self.rows,
            "samples": self.samples,
        }


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair came to.

    Attributes:
        judged: How the savepoint kept the rules.
        repairs: What becomes of each part that has broken rows.
        derived: What came of it: another savepoint, where a row was broken.
    """

    judged: tuple[Judged, ...]
    repairs: tuple[Repair, ...]
    derived: Derived

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        made = self.derived.to_dict()
        return {
            "of": made["of"],
            "batch": made["batch"],
            "ok": not any(each.broken for each in self.judged),
            "rules": [each.to_dict() for each in self.judged],
            "repairs": [each.to_dict() for each in self.repairs],
            "savepoint": made["savepoint"],
            "stores": made["stores"],
        }


def repair_savepoint(
    spark: SparkSession,
    repository: Repository,
    job: str,
    savepoint: str,
    rules: Sequence[Rule],
    assignments: Sequence[Assignment],
    workshop: Workshop,
    *,
    limit: int,
    dry_run: bool = False,
    note: str = "",
    by: Mapping[str, str] | None = None,
    say: Say = lambda text: None,
) -> Repaired:
    """Judge a savepoint's state by rules, and make a savepoint in which the broken rows are repaired.

    Args:
        spark: A session.
        repository: Where both are.
        job: `job` or `job/query`.
        savepoint: The id of the first one, which stays as it is.
        rules: What must be true of every row.
        assignments: What broken rows get.
        workshop: Where state is laid out.
        limit: How many rows to show, of each rule and part.
        dry_run: Only say what would be.
        note: A note for the new savepoint.
        by: Who asks.
        say: Told what is being done.

    Raises:
        InputError, RefusedError: As `mend`; nothing was written.
        StreambankError: As `derive`.
    """
    judged: list[Judged] = []
    repairs: list[Repair] = []

    def decide(state: QueryState) -> list[Mended]:
        judged.extend(validate_state(state, rules, limit))
        mended = mend(state, rules, assignments)
        repairs.extend(
            Repair(one.part.operator, one.part.name, one.rows, samples(one, limit)) for one in mended
        )
        return mended

    derived = derive(
        spark,
        repository,
        job,
        savepoint,
        workshop,
        operation=OPERATION,
        mend=decide,
        dry_run=dry_run,
        note=note,
        by=by,
        say=say,
    )
    return Repaired(tuple(judged), tuple(repairs), derived)
