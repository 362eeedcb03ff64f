"""Feeds parsers what is nearly right: `python -m tests.fuzz.run [--target NAME] [--seconds S] [--seed N]`.

Each target runs in a separate process, with room for 300 MB more than it began with and 5 s for an answer.
Seconds are the processor's, so that a busy machine changes nothing; one that waits has a minute.
An input is refused by one of the project's errors or read; anything else is a failure, and the input is kept.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from streambank.core.errors import InternalError, StreambankError
from tests.fuzz.inputs import Target
from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS

ANSWER_S = 5.0
WAITING_S = 60.0
ROOM_BYTES = 300 << 20
_NEW_NAME = 0.05
KEPT = Path(".streambank/fuzz")


class TooSlowError(BaseException):
    """No answer in time; no parser can take it for its own error."""


class Failure(Exception):
    """An input that broke a promise.

    Args:
        kind: What broke: exception and place.
        data: The input.
        number: Which one it was.
    """

    def __init__(self, kind: str, data: bytes, number: int) -> None:
        super().__init__(kind)
        self.kind, self.data, self.number = kind, data, number


def fuzz(target: Target, seconds: float, seed: int, most: int = 1 << 62) -> int:
    """Feed a target for a while; how many inputs it got.

    Args:
        target: What is fed.
        seconds: For how long, in seconds of the processor.
        seed: The source of chance: the same one gives the same inputs.
        most: How many inputs at most.

    Raises:
        Failure: An exception that is none of ours, no answer within 5 s, or more than 300 MB.
    """
    chance = random.Random(seed)
    mutator, seeds = Mutator(chance), [data for data in target.seeds() if _is_read(target, data)]
    assert seeds, "what is right is read"
    room = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + ROOM_BYTES
    before = {one: signal.signal(one, _too_slow) for one in (signal.SIGPROF, signal.SIGALRM)}
    until, number = time.process_time() + seconds, 0
    try:
        while time.process_time() < until and number < most:
            number += 1
            data = _input(target, mutator, chance.choice(seeds), seeds)
            try:
                signal.setitimer(signal.ITIMER_PROF, ANSWER_S)
                signal.setitimer(signal.ITIMER_REAL, WAITING_S)
                try:
                    target.feed(data)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    signal.setitimer(signal.ITIMER_PROF, 0)
            except InternalError as error:
                raise Failure(_kind(error), data, number) from error
            except StreambankError:
                pass
            except TooSlowError as error:
                raise Failure(f"no answer within {ANSWER_S:.0f} s: {_kind(error)}", data, number) from error
            except Exception as error:
                raise Failure(_kind(error), data, number) from error
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > room:
                raise Failure("more than 300 MB", data, number)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    return number


def _is_read(target: Target, data: bytes) -> bool:
    try:
        target.feed(data)
    except StreambankError:
        return False
    return True


def _input(target: Target, mutator: Mutator, seed: bytes, seeds: Sequence[bytes]) -> bytes:
    if not target.is_tree:
        return mutator(seed, seeds)
    name, _, content = seed.partition(b"\n")
    others = [one.partition(b"\n")[2] for one in seeds]
    if mutator.chance.random() < _NEW_NAME:
        name = mutator(name, [one.partition(b"\n")[0] for one in seeds]).replace(b"\n", b"")
    return name + b"\n" + mutator(content, others)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError


def _kind(error: BaseException) -> str:
    places = [one for one in traceback.extract_tb(error.__traceback__) if "/provider/" in one.filename]
    place = places[-1] if places else None
    where = f"{place.filename.partition('/provider/')[2]}:{place.lineno}" if place else "outside"
    return f"{type(error).__name__} at {where}"


def main() -> int:
    """Run the targets that were named, one after the other; 1 where one broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each target (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="what a failure has named, to see it again")
    parser.add_argument("--kinds", action="store_true", help="go on after a failure, and list each kind once")
    asked = parser.parse_args()
    os.environ["XDG_STATE_HOME"] = str((KEPT / "state").resolve())  # what a choice is proven by
    worst = 0
    for name in asked.target or sorted(TARGETS):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os._exit(_one(name, asked.seconds, asked.seed, kinds=asked.kinds))
        _, status = os.waitpid(child, 0)
        worst = max(worst, 1 if status else 0)
    return worst


def _one(name: str, seconds: float, seed: int | None, *, kinds: bool) -> int:
    seen: dict[str, int] = {}
    inputs, until = 0, time.process_time() + seconds
    while True:
        chosen = random.randrange(1 << 32) if seed is None else seed
        try:
            inputs += fuzz(TARGETS[name], until - time.process_time(), chosen)
        except Failure as failure:
            inputs += failure.number
            if failure.kind not in seen:
                KEPT.mkdir(parents=True, exist_ok=True)
                file = KEPT / f"{name}-{chosen}-{failure.number}"
                file.write_bytes(failure.data)
                print(
                    f"{name}: {failure.kind}, input {failure.number} of --seed {chosen}: {file}", flush=True
                )
                if not kinds:
                    traceback.print_exception(failure.__cause__ or failure)
            seen[failure.kind] = seen.get(failure.kind, 0) + 1
            if kinds and time.process_time() < until and seed is None:
                continue
        break
    print(f"{name}: {inputs:,} inputs, {len(seen)} kinds of failures", flush=True)
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
