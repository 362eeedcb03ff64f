"""Who gets the tasks of a take, a verification, a restore or a replica done: threads, or other machines.

A `Work` can do one task; a task and its outcome are plain data. An `Executor` takes a work and many tasks and
sees to it that each gets done: `Threads` in this process, others (Spark executors) by sending the tasks as
lines of JSON (plan_lines.py) to machines that open the same work from its `header` and do the same.

What every executor may count on, and every work must keep:

* A task may be done twice, and at the same time in two places: a retried or a speculative attempt changes
  nothing. Objects have their digests for names, packs too, and a file of a restore has one content.
* A task that never ended leaves at most garbage: objects and packs that no manifest names.
* No task commits anything: manifest and `metadata` are written by whoever asked, after `run` has returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from streambank.core.last_read import named_in_errors
from streambank.work.pace import Progress, RateLimit, check_parallel

if TYPE_CHECKING:
    from typing_extensions import Self


class Task(Protocol):
    """One piece of work, as plain data."""

    @property
    def files(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def to_dict(self) -> dict[str, Any]: ...


_BUNDLE_BYTES = 1 << 20
_BUNDLE_FILES = 64

T = TypeVar("T", bound=Task)
O = TypeVar("O")  # noqa: E741 - the outcome
Portions = Generator[tuple[Sequence[T], Callable[[T], O]], None, None]


class Work(ABC, Generic[T, O]):
    """What is done with each of some tasks; safe to use from several threads."""

    kind: ClassVar[str]

    @abstractmethod
    def run(self, task: T) -> O: ...

    def portions(self, tasks: Sequence[T]) -> Portions[T, O]:
        """Tasks in portions that can be worked on at once, each with what does one of them.

        The next portion is asked for when the one before is done; closing this generator lets go of what the
        current one holds.
        """
        yield tasks, self.run

    @abstractmethod
    def at_once(self) -> int:
        """How many tasks are best done at the same time, where nobody has said it."""

    # For machines elsewhere

    def keeps(self) -> bool:
        """Whether `portions` keeps here what its tasks are about, whatever becomes of it meanwhile."""
        return False

    def is_portable(self, task: T) -> bool:
        """Whether a task may be done elsewhere; the others are done here, before those."""
        return True

    @abstractmethod
    def header(self) -> dict[str, Any]:
        """What another machine has to know beside the tasks; never a credential.

        Raises:
            InputError: A location means nothing to any other process (code `not-elsewhere`).
        """

    @classmethod
    @abstractmethod
    def opened(cls, header: Mapping[str, Any]) -> AbstractContextManager[Self]:
        """The same work from its header, for a `with` whose end makes durable what was done in it.

        Raises:
            RefusedError: This machine sees other files under the same paths (code `paths-not-shared`).
        """

    @classmethod
    @abstractmethod
    def read_task(cls, data: Mapping[str, Any]) -> T: ...

    @classmethod
    @abstractmethod
    def write_outcome(cls, outcome: O) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def read_outcome(cls, task: T, data: Mapping[str, Any]) -> O: ...

    def counts(self) -> dict[str, int]:
        return {}

    def absorb(self, counts: Mapping[str, int]) -> None:
        """Add what was counted elsewhere to what is counted here."""
        return None

    def done_elsewhere(self) -> None:
        """All tasks that were done elsewhere are done: take in what changed in the meantime."""
        return None


class Executor(Protocol):
    """Gets tasks done."""

    def run(self, work: Work[T, O], tasks: Sequence[T], done: Callable[[T, O], None]) -> None:
        """Do all tasks.

        Args:
            tasks: The more urgent ones in front.
            done: Called with each task and its outcome, from whichever thread did it.

        Raises:
            StreambankError: What a task raised. Others may have been done and told by then; none is under
                way any more.
        """


class Threads:
    """Does tasks in threads of this process, as many as are best for the stores unless `parallel` says it."""

    def __init__(self, parallel: int | None = None) -> None:
        self.parallel = parallel

    def run(self, work: Work[T, O], tasks: Sequence[T], done: Callable[[T, O], None]) -> None:
        def some(run: Callable[[T], O], bundle: Sequence[T]) -> None:
            with named_in_errors():
                for task in bundle:
                    done(task, run(task))

        with (
            closing(work.portions(tasks)) as portions,
            ThreadPoolExecutor(
                self.parallel or work.at_once(), thread_name_prefix=f"streambank-{work.kind}"
            ) as pool,
        ):
            for portion, run in portions:
                futures = [pool.submit(some, run, bundle) for bundle in bundles(portion)]
                try:
                    for future in futures:
                        future.result()
                finally:
                    for future in futures:
                        future.cancel()


def bundles(tasks: Sequence[T]) -> Iterator[Sequence[T]]:
    """Tasks in the same order, small ones together: a thread is given as much as is worth handing over."""
    bundle: list[T] = []
    size_bytes = files = 0
    for task in tasks:
        if bundle and (size_bytes + task.size_bytes > _BUNDLE_BYTES or files + task.files > _BUNDLE_FILES):
            yield bundle
            bundle, size_bytes, files = [], 0, 0
        bundle.append(task)
        size_bytes += task.size_bytes
        files += task.files
    if bundle:
        yield bundle


FAR_BYTES = 64 << 30
"""So many bytes are worth the start of an application elsewhere: minutes of work against seconds."""
FAR_FILES = 200_000
"""So are so many files, however small."""


@dataclass(frozen=True, slots=True)
class BySize:
    """Does little here and much elsewhere; what is left after a re-plan is little again."""

    near: Executor
    far: Executor
    far_bytes: int = FAR_BYTES
    far_files: int = FAR_FILES

    def run(self, work: Work[T, O], tasks: Sequence[T], done: Callable[[T, O], None]) -> None:
        size_bytes = sum(task.size_bytes for task in tasks)
        files = sum(task.files for task in tasks)
        much = size_bytes >= self.far_bytes or files >= self.far_files
        (self.far if much else self.near).run(work, tasks, done)


@dataclass(frozen=True, slots=True)
class Pace:
    """How work on many files goes on: who does it, how fast, and who is told.

    Attributes:
        executor: Who does it; threads of this process for None.
        parallel: How many files at once, by threads of this process; None for as many as are best.
        max_bytes_per_s: How many bytes this process reads in a second at most, in all that goes by this pace.

    Raises:
        InputError: `parallel` is less than 1 (code `bad-input`), or the rate (`bad-rate`).
    """

    executor: Executor | None = None
    parallel: int | None = None
    max_bytes_per_s: int | None = None
    progress: Progress | None = None
    rate: RateLimit = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_parallel(self.parallel)
        object.__setattr__(self, "rate", RateLimit(self.max_bytes_per_s))

    @property
    def who(self) -> Executor:
        return self.executor or Threads(self.parallel)


DEFAULT_PACE = Pace()
"""By threads of this process, as fast as it goes, and nobody is told."""
