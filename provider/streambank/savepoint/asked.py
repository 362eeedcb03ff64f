"""Whether what a take is asked for makes sense."""

from __future__ import annotations

from streambank.core.errors import InputError

MAX_NOTE_CHARACTERS = 4000


def check_asked(note: str, parallel: int | None, max_replans: int, batch: int | None) -> None:
    """Refuse a note that is too long, and numbers that cannot be.

    Raises:
        InputError: Codes `note-too-long`, `bad-input`.
    """
    if len(note) > MAX_NOTE_CHARACTERS:
        raise InputError(
            f"A note has at most {MAX_NOTE_CHARACTERS} characters, this one {len(note)}.",
            code="note-too-long",
            hint="Say it shorter, and keep the rest elsewhere.",
        )
    if (parallel is not None and parallel < 1) or max_replans < 0 or (batch is not None and batch < 0):
        raise InputError(
            f"parallel={parallel}, max_replans={max_replans} and batch={batch} do not make a take.",
            code="bad-input",
            hint="parallel is 1 or more, max_replans and batch are not negative.",
        )
