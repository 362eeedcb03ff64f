"""That no two jobs of a file, sites and copies included, share a checkpoint or a name."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from streambank.declaration.fields import Source
from streambank.storage import followed, upwards


def refuse_shared_checkpoints(checkpoints: Iterable[tuple[str, str, str]], source: Source) -> None:
    """Two queries in one directory destroy each other's state, nested directories included.

    Args:
        checkpoints: Of each query its job, what messages call it, and its checkpoint.

    Raises:
        InputError: Two share one (code `bad-declaration`).
    """
    at: dict[str, tuple[str, str]] = {}
    inside: dict[str, tuple[str, str]] = {}  # what holds a checkpoint, with the first one that it holds
    for job, owner, location in checkpoints:
        place, *above = upwards(followed(location))
        taken = inside.get(place) or next((at[one] for one in (place, *above) if one in at), None)
        if taken is not None:
            other, taken_by = taken
            raise source.mistake(
                ("jobs", job, "checkpoint"),
                f"{location} is, contains or is inside the checkpoint {other} of {taken_by}",
                "Name another directory.",
            )
        at[place] = (location, owner)
        for one in above:
            inside.setdefault(one, at[place])


def refuse_shared_names(
    copies: Iterable[tuple[str, str, str]], jobs: Collection[str], source: Source
) -> None:
    """A cluster finds drivers by the name of their job: a copy must not have that of another job.

    Args:
        copies: Of each copy its job, its name, and what its drivers are called.

    Raises:
        InputError: Two have one name (code `bad-declaration`).
    """
    taken = dict.fromkeys(jobs, "a job")
    for job, copy, name in copies:
        if name in taken:
            raise source.mistake(
                ("jobs", job, "copies", copy),
                f"its drivers would be called {name}, and so are those of {taken[name]}",
                "Give the copy another name.",
            )
        taken[name] = f"the copy {copy} of job {job}"
