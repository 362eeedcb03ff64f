"""The command: every verb, registered."""

from __future__ import annotations

from typing import Annotated

import typer

from streambank import __version__
from streambank.cli.plugins import Verbs
from streambank.cli.verb_options import Commands
from streambank.cli.verbs import (
    compact,
    doctor,
    index,
    inspect,
    jobs,
    programs,
    replicas,
    retention,
    savepoints,
    sign,
    sinks,
    skew,
    sla,
    take,
)
from streambank.cli.verbs.advice import advise, plan_memory
from streambank.cli.verbs.recovery import drill, failover, fork, restore, upgrade

EPILOG = """Examples:

  streambank take /data/checkpoints/orders -r /data/savepoints --job orders

  streambank list -r /data/savepoints

  streambank restore latest-good -r /data/savepoints --job orders --into /data/restored

Exit codes: 0 done, 1 problems found, 2 to 8 and 70 by kind of error, 130 interrupted.
"""

app = Commands(
    cls=Verbs,
    name="streambank",
    help="Savepoints for Spark Structured Streaming: inspect, take, verify, restore.",
    epilog=EPILOG,
    add_completion=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        print(f"streambank {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Savepoints for Spark Structured Streaming: inspect, take, verify, restore."""


app.add(
    inspect,
    take,
    savepoints,
    restore,
    drill,
    failover,
    fork,
    upgrade,
    sinks,
    retention,
    index,
    replicas,
    sign,
    doctor,
    skew,
    sla,
    compact,
    programs,
    advise,
    plan_memory,
)
app.add_typer(jobs.app, name="job")
