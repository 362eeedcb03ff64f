"""The verb `programs`."""

from __future__ import annotations

from typing import Annotated

from streambank.cli.output import console
from streambank.core.options import Option

EXAMPLES = """Examples:

  streambank programs

  spark-submit "$(streambank programs run_query)" --job orders --jobs streaming_jobs.toml
"""


def programs(
    name: Annotated[
        str | None, Option("Print the path of this one, and nothing else.", metavar="[NAME]", positional=True)
    ] = None,
) -> None:
    """Show where the programs for spark-submit are installed, and what each is for."""
    from streambank.core.errors import check_choice
    from streambank.driver.installed import PROGRAMS, program_path

    if name is not None:
        check_choice(name, "program", tuple(PROGRAMS))
    found = [
        {"name": one, "path": str(program_path(one)), "purpose": purpose}
        for one, purpose in PROGRAMS.items()
        if name in (None, one)
    ]

    def show() -> None:
        for one in found:
            if name is None:
                console.line(f"{one['name']}: {one['purpose']}")
            console.line(f"  {one['path']}" if name is None else one["path"])

    console.answer({"programs": found}, show)


VERBS = {"programs": (programs, EXAMPLES)}
