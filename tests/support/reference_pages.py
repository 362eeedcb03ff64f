"""What the pages of reference say of options that are declared (streambank/core/verb_options.py).

`python -m tests.support.reference_pages` writes it into the pages; the tests of these compare.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_origin

from streambank.cli.verb_options import help_of
from streambank.core.options import OptionField, flag_of, options_of
from streambank.core.verb_options import DrillOptions, FailoverOptions, RefreshOptions, UpgradeOptions
from tests.support.paths import ROOT

CLI, AIRFLOW = ROOT / "docs/reference/cli.md", ROOT / "docs/reference/airflow.md"
VERBS: dict[str, tuple[type[Any], str, str]] = {
    "drill": (DrillOptions, "operators.drill.RunDrillOperator", "drill"),
    "failover": (FailoverOptions, "operators.failover.FailoverStreamingJobOperator", "failover"),
    "fork": (RefreshOptions, "operators.restore.RefreshCopyOperator", "refresh.<copy>"),
    "upgrade": (UpgradeOptions, "operators.upgrade.UpgradeStreamingJobOperator", "upgrade"),
}
"""Of each verb its options, its operator, and its DAG without the job."""


def option_rows(options: type[Any]) -> list[str]:
    """The rows of the command line's page."""
    return [_row(one) for one in options_of(options) if one.option is not None and not one.option.positional]


def arguments(verb: str, options: type[Any]) -> str:
    """How the row of an operator begins: its arguments that are options of a verb."""
    names = ", ".join(f"`{option.name}`" for option in options_of(options))
    return f"{names}: {_as_the_command(verb)}"


def _as_the_command(verb: str) -> str:
    """A reference to where its options are explained."""
    found = re.search(rf"^## (streambank {verb} .*)$", CLI.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, verb
    anchor = re.sub(r"[^a-z -]", "", found[1].lower()).replace(" ", "-")
    return f"as [`streambank {verb}`](cli.md#{anchor}) takes them"


def form_fields(options: type[Any]) -> str:
    asked = [one.said for one in options_of(options) if one.option is not None and one.option.title]
    return ", ".join(f"`{name}`" for name in (*asked, "note"))


def _row(option: OptionField) -> str:
    said = option.option
    assert said is not None
    if option.kind is bool:
        value = ""
    elif option.values:
        value = " " + "|".join(option.values)
    elif get_origin(option.kind) is Mapping:
        value = f" {said.metavar or 'NAME=VALUE'}"
    else:
        value = f" {said.metavar or ('DURATION' if option.is_duration else 'TEXT')}"
    usual = option.shown_default if option.kind is not bool else None
    text = help_of(option)
    text = text[0].lower() + text[1:] + (f" Default: `{usual}`" if usual else "")
    if option.kind is bool and option.default is not None and option.default():
        value = f"`, `--no-{flag_of(option)[2:]}"
    value = value.replace("|", r"\|")
    return f"| `{flag_of(option)}{value}` | {text.removesuffix('.')} |"


def with_options(page: str) -> str:
    """The command line's page, with the rows of options that are declared."""
    for verb, (options, _, _) in VERBS.items():
        head, heading, rest = page.partition(f"\n## streambank {verb} ")
        section, after, later = rest.partition("\n## ")
        flags = {flag_of(option) for option in options_of(options)}
        lines = section.split("\n")
        own = [
            at
            for at, line in enumerate(lines)
            if (row := re.match(r"\| `(--[a-z-]+)", line)) and row[1] in flags
        ]
        first = own[0] if own else lines.index("|---|---|") + 1
        lines = [line for at, line in enumerate(lines) if at not in own]
        lines[first:first] = option_rows(options)
        page = head + heading + "\n".join(lines) + after + later
    return page


def with_arguments(page: str) -> str:
    """Airflow's page, with the arguments and form fields that are options."""
    for verb, (options, operator, dag) in VERBS.items():
        end = re.escape(_as_the_command(verb))
        row = re.compile(rf"^(\| `{re.escape(operator)}` \| )(?:[^|]*?{end})?", re.MULTILINE)
        page = row.sub(rf"\g<1>{arguments(verb, options)}", page)
        form = re.compile(rf"^(\| `<job>\.{re.escape(dag)}` \| [^|]* \| )[^|]*? \|$", re.MULTILINE)
        page = form.sub(rf"\g<1>{form_fields(options)} |", page)
    return page


def main() -> None:
    CLI.write_text(with_options(CLI.read_text(encoding="utf-8")), encoding="utf-8")
    AIRFLOW.write_text(with_arguments(AIRFLOW.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
