"""The operator that judges state by rules, and makes a savepoint whose broken rows are repaired."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from streambank.core.options import as_texts
from streambank.core.state_options import PartOptions, SampleOptions
from streambank_airflow.arguments import PartArguments, RepairArguments, SampleArguments, Templated, argument
from streambank_airflow.operators.rewrite.base import StateOperator


class ValidateStateOperator(StateOperator, RepairArguments, PartArguments, SampleArguments):
    """Judges every row of a savepoint's state by rules; with repairs, makes one with these rows repaired.

    The task fails where rows stay broken.

    Args:
        rules: SQL expressions that must be true of every row; `0: value.count >= 0` is for operator 0,
            `0/left: ...` for a part of it.
        fail_on_broken: Fail the task where rows break a rule and are not repaired; without it the result says
            so.

    Returns:
        `job`, `of` (the savepoint), `batch`, `ok` (no row of it breaks a rule), `dry_run`, `rules` (how many
            were judged, over all parts), `rows`, `broken` (the most rows that one of them found), `repaired`
            (rows), `savepoint` (the new one; None without a repair), `generation` (that counts).
    """

    operation = "validate"

    alert_kinds = ()

    rules: Templated[Sequence[str] | str]
    fail_on_broken: Templated[bool] = argument(True)

    def request(self) -> dict[str, Any]:
        rules = {"rules": as_texts(self.rules), "repairs": list(self.repairs)}
        of = self.values_of(PartOptions) | self.values_of(SampleOptions)
        return {"operation": self.operation, **rules, **of}

    def tell(self, report: Mapping[str, Any]) -> None:
        """Log how rules are kept, and what was repaired."""
        for one in report["rules"]:
            self.log.log(
                logging.ERROR if one["broken"] else logging.INFO,
                "Operator %(operator)d, %(part)s: %(broken)d of %(rows)d rows break %(rule)s",
                one,
            )
            for example in one["examples"]:
                self.log.info("Broken: %s", json.dumps(example, ensure_ascii=False))
        for one in report["repairs"]:
            done = "would be repaired" if report["dry_run"] else "repaired"
            self.log.info("Operator %d, %s: %d rows %s", one["operator"], one["part"], one["rows"], done)
            for sample in one["samples"]:
                self.log.info("%s", json.dumps(sample, ensure_ascii=False))
        if report["savepoint"] is not None:
            self.log.info(
                "Savepoint %s is of batch %d of %s.", report["savepoint"], report["batch"], report["of"]
            )

    def result(self, report: Mapping[str, Any]) -> dict[str, Any]:
        worst = max(report["rules"], key=lambda one: one["broken"], default=None)
        left, job = not report["ok"] and not report["repairs"], self.job.partition("/")[0]
        if left and worst is not None and self.fail_on_broken:
            raise AirflowFailException(
                f"State of {report['of']} breaks a rule: {worst['broken']:,} of {worst['rows']:,} rows of "
                f"operator {worst['operator']}, {worst['part']}, break {worst['rule']}. Hint: give repairs, "
                "which make a savepoint in which these rows are repaired, or remove the keys by "
                f"{job}.compact."
            )
        return {
            "job": self.job,
            **{name: report[name] for name in ("of", "batch", "ok", "dry_run", "savepoint", "generation")},
            "rules": len(report["rules"]),
            "rows": max((one["rows"] for one in report["rules"]), default=0),
            "broken": worst["broken"] if worst is not None else 0,
            "repaired": 0 if report["dry_run"] else sum(one["rows"] for one in report["repairs"]),
        }
