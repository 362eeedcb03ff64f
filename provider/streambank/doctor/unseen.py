"""What doctor could not look at: said once for each reason, and never guessed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streambank.core.finding import Finding


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that was not looked at.

    Attributes:
        what: What, so that it fits into a list: `the heap that the state takes`.
        why: Why not, in a sentence.
        hint: What would let it be seen.
    """

    what: str
    why: str
    hint: str


Seen = Finding | Unseen
"""What a check gives."""


def gathered(seen: Iterable[Seen]) -> list[Finding]:
    """The findings, each once, and at the end one for each reason for which something was not looked at."""
    found: dict[Finding, None] = {}
    missing: dict[tuple[str, str], list[str]] = {}
    for one in seen:
        if isinstance(one, Finding):
            found[one] = None
        else:
            missing.setdefault((one.why, one.hint), []).append(one.what)
    for (why, hint), things in missing.items():
        told = "; ".join(dict.fromkeys(things))
        found[
            Finding(
                "not-looked-at",
                "info",
                "",
                why,
                f"Nothing is said of this, neither good nor bad: {told}.",
                hint,
            )
        ] = None
    return list(found)
