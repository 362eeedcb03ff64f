"""What it means for a query's output that a key is gone from its state."""

from __future__ import annotations

_MEANINGS = (
    (
        ("stateStoreSave",),
        "A key that comes again starts from zero; what append mode had not given out yet is never given.",
    ),
    (
        ("sessionWindow",),
        "Its open sessions are never given out; rows that come later begin new ones.",
    ),
    (
        ("dedupe",),
        "A row that was seen before is taken for a new one, and given out once more.",
    ),
    (
        ("symmetricHashJoin",),
        "Rows that waited for the other side are gone: what comes later finds none of them, and an outer "
        "join never gives them out as unmatched.",
    ),
    (
        ("flatMapGroupsWithState", "applyInPandasWithState", "transformWithState"),
        "The function finds no state for the key when it comes again; its timeouts and timers are gone, too, "
        "and never fire.",
    ),
)


def meaning(operator: str | None) -> str:
    """One sentence or two about an operator.

    Args:
        operator: Spark's name of it, where it is known.
    """
    for names, sentence in _MEANINGS:
        if operator is not None and any(operator.lower().startswith(name.lower()) for name in names):
            return sentence
    return "A key that comes again starts from zero."
