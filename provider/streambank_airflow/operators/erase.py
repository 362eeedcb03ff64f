"""The operator that makes a savepoint without the state of one key, and says where else the key is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from streambank.core.units import say_count
from streambank_airflow.arguments import EraseArguments, Templated, argument
from streambank_airflow.operators.rewrite.base import StateOperator

_NO_VALUE = "key "
"""With this before it no text is a Python value."""


class EraseStateOperator(StateOperator, EraseArguments):
    """Makes a savepoint without the state of one key, and looks for the key in the job's other savepoints.

    The savepoints that hold it, also in replicas, and the directories that may hold it are in the log: they
    stay until somebody expires or deletes them. The task fails if the search could not be made; the new
    savepoint is there all the same.

    Args:
        key: The key's only field as text, or some of its fields as a JSON object. A text is taken as it is
            written, also where a DAG renders templates to Python objects: `0017` stays `0017`.
        search: Whether other savepoints are looked into.

    Returns:
        As `CompactStateOperator`; and `searched` (whether it was), `savepoints` (of the job, over all
            places), `holding` (how many of them hold the key), `unknown` (for how many that is not known),
            `live` (how many checkpoints may hold it), `left` (how many directories that work on the job has
            left behind may).
    """

    operation = "erase"
    limited = True

    alert_kinds = ()

    key: Templated[str | Mapping[str, Any]]
    search: Templated[bool] = argument(True)

    def render_template(self, content: Any, *args: Any, **kwargs: Any) -> Any:
        """As for every operator, but a key is never read as a Python value: `1_000` is not `1000`."""
        render = super().render_template

        def verbatim(text: Any) -> Any:
            if not isinstance(text, str):
                return text
            return str(render(_NO_VALUE + text, *args, **kwargs)).removeprefix(_NO_VALUE)

        if content is not self.key:
            return render(content, *args, **kwargs)
        if isinstance(content, Mapping):
            return {name: verbatim(one) for name, one in content.items()}
        return verbatim(content)

    def request(self) -> dict[str, Any]:
        return {
            "operation": self.operation,
            "key": self.key if isinstance(self.key, str) else json.dumps(self.key),
            "operator": self.operator,
        }

    def where_else(self) -> Sequence[str] | None:
        return self.replicas if self.search else None

    def tell(self, report: Mapping[str, Any]) -> None:
        """Log what was done, and where else the key is."""
        super().tell(report)
        for one in report.get("passed_over") or ():
            self.log.warning("Passed over: operator %(operator)d (%(name)s): %(why)s", one)
        if not report["searched"]:
            return
        self.log.info(
            "Searched for the key in %s; %d had to be read for it.",
            say_count(report["savepoints"], "savepoint"),
            report["looked_into"],
        )
        for one in report["holding"]:
            stays = "pinned, " if one["pinned"] else ""
            name = f"Savepoint {one['savepoint']} in" if one["savepoint"] else "Repository"
            self.log.warning("%s %s may hold the key: %s%s.", name, one["repository"], stays, one["found"])
        for one in report["live"]:
            self.log.warning("Checkpoint %(location)s may hold the key: %(found)s.", one)
        for one in report["left"]:
            if one["found"] != "no":
                self.log.warning(
                    "Left behind (%s): %s may hold the key: %s. It is needed by: %s.",
                    one["kind"],
                    one["location"],
                    one["found"],
                    one["needed_by"] or "nothing",
                )
        for one in report["left_unread"]:
            self.log.warning("Not searched: %(location)s: %(why)s", one)
        if report["holding"]:
            self.log.warning(
                "Once the new savepoint is verified and restored: unpin these, expire them (keep_last=1 and "
                "min_verified=0 of ExpireSavepointsOperator), and sweep, in replicas too."
            )
        self.log.info("Other jobs and queries, sources, sinks and logs were not searched.")

    def result(self, report: Mapping[str, Any]) -> dict[str, Any]:
        holding = report["holding"] or ()
        if not report["searched"] and self.search:
            made = f"Savepoint {report['savepoint']} is without it." if report["savepoint"] else ""
            raise AirflowFailException(
                f"Other savepoints of job {self.job} were not searched: {report['why']} {made} "
                "Hint: repair that, then clear this task; it searches again."
            )
        return {
            **super().result(report),
            "searched": report["searched"],
            "savepoints": report.get("savepoints", 0),
            "holding": sum(one["found"] == "yes" for one in holding),
            "unknown": sum(one["found"] != "yes" for one in holding),
            "live": len(report.get("live") or ()),
            "left": sum(one["found"] != "no" for one in report.get("left") or ()),
        }
