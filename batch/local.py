"""Parts on processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any, Self

from ..errors import FqfuseError, InternalError, InvalidInput
from .job import PARTS_AT_ONCE, Job, Record
from .parts import Part

if TYPE_CHECKING:
    from .worker import Worker

_DEATHS = 3  # of processes at one part, until the part is given up


def run_parts(
    job: Job, parts: Iterable[Part], workers: int, done: Callable[[Record], None]
) -> None:
    """Runs parts on so many processes; each has two, so that it computes the second one while the
    first is on its way to the disk. When a process has died each has one: which ended it is known.

    Args:
        job: what for.
        parts: those that are left.
        workers: how many processes.
        done: is told of each part.

    Raises:
        FqfuseError: what a worker raises; or one part ends its process again and again.
    """
    left = shares(list(parts), workers)
    deaths: Counter[int] = Counter()
    with _broken_pipes_told(), ExitStack() as stack:
        running = [stack.enter_context(_Process(job)) for _ in left]
        while any(process.parts for process in running) or any(left):
            _give(running, left, 1 if deaths else PARTS_AT_ONCE)
            wait([process.answers for process in running if process.parts])
            for process in [one for one in running if one.parts]:
                if not process.answers.poll():
                    continue
                record = process.record()
                if record is not None:
                    done(record)
                    continue
                first = process.parts[0]
                deaths[first.index] += 1
                if deaths[first.index] >= _DEATHS:
                    raise _given_up(first, process.ending())
                number = running.index(process)
                left[number].extendleft(reversed(process.parts))
                running[number] = stack.enter_context(_Process(job))


def _give(running: Sequence[_Process], left: Sequence[deque[Part]], most: int) -> None:
    """Hands out parts so that each process has `most`: a second one where all have a first."""
    for count in range(1, most + 1):
        for number, process in enumerate(running):
            if len(process.parts) < count and (part := taken(left, number)) is not None:
                process.give(part)


def shares(parts: Sequence[Part], workers: int) -> list[deque[Part]]:
    """The parts that each worker begins with, neighbours: a row group that several parts lie in is
    decoded by few workers, and once by each. As many as there are workers, or parts.
    """
    count = min(workers, len(parts))
    ends = [len(parts) * number // max(count, 1) for number in range(count + 1)]
    return [deque(parts[start:stop]) for start, stop in pairwise(ends)]


def taken(left: Sequence[deque[Part]], worker: int) -> Part | None:
    """The next part for a worker. One that has none left takes the later half of the longest share;
    None: all parts are given out.
    """
    longest = max(left, key=len)
    if not left[worker]:
        for _ in range(-(-len(longest) // 2)):
            left[worker].appendleft(longest.pop())
    return left[worker].popleft() if left[worker] else None


class _Process:
    """A worker as a context manager; leaving it ends the process."""

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        self.answers, theirs = context.Pipe()
        self.parts: list[Part] = []  # that it has no answer to, in the order in which it has them
        self._process: SpawnProcess = context.Process(
            target=_serve, args=(theirs, job), name="fqfuse-batch", daemon=True
        )
        self._process.start()
        theirs.close()

    def give(self, part: Part) -> None:
        """Hands it a part; one that has died will not answer."""
        self.parts.append(part)
        try:
            self.answers.send(part)
        except OSError:
            return

    def record(self) -> Record | None:
        """The next answer; None: the process has died.

        Raises:
            FqfuseError, InternalError: the worker did.
        """
        try:
            answer = self.answers.recv()
        except (EOFError, OSError):
            return None
        if isinstance(answer, BaseException):
            raise answer
        record: Record = answer
        self.parts = [part for part in self.parts if part.index != record.part]
        return record

    def ending(self) -> str:
        """How the process ended."""
        self._process.join()
        code = self._process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Whatever it does is done in files that are there whole or not at all.
        self._process.kill()
        self._process.join()
        self.answers.close()


def _serve(pipe: Connection[Any, Any], job: Job) -> None:
    """A worker's process: parts in, records out, until the other side has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it is interrupted, too
    threading.Thread(target=_end_with_parent, daemon=True).start()
    worker: Worker | None = None
    making, answering = threading.Lock(), threading.Lock()

    def answered(part: Part) -> Record:
        nonlocal worker
        with making:
            if worker is None:
                from .worker import Worker

                worker = Worker(job)
        return worker.run(part)

    def answer(part: Part) -> None:
        try:
            found: object = answered(part)
        except (FqfuseError, InternalError) as error:
            found = error
        except Exception as error:  # noqa: BLE001  # told to whoever started this process
            found = InternalError(f"{type(error).__name__}: {error}")
        try:
            with answering:
                pipe.send(found)
        except BaseException:  # noqa: BLE001  # whoever waits for the answer sees the process end
            os._exit(1)

    with ThreadPoolExecutor(PARTS_AT_ONCE) as parts:
        while True:
            try:
                part = pipe.recv()
            except (EOFError, OSError):
                return
            parts.submit(answer, part)


@contextmanager
def _broken_pipes_told() -> Iterator[None]:
    """Makes a pipe whose other end has died an OSError: a command line lets the system end the process
    for that, which would end the run with the worker.
    """
    if not hasattr(signal, "SIGPIPE") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


def _end_with_parent() -> None:
    """Ends this process, wherever it is, when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _given_up(part: Part, ending: str) -> InvalidInput:
    rows = f"rows {part.first:,} to {part.first + part.rows - 1:,}"
    goes_on = "the same command goes on where this one was"
    hint = f"mend what they wrote above; {goes_on}"
    if ending == "SIGKILL":
        hint = f"memory may be short: take a smaller --batch in a new folder, or fewer --workers; {goes_on}"
    if ending == "SIGBUS":
        hint = f"a file of these rows cannot be read to its end: look at the disk that it lies on; {goes_on}"
    return InvalidInput(
        f"{_DEATHS} processes ended one after the other at part {part.index} ({rows}): {ending}",
        hint=hint,
    )
