"""The coordinator's end of a worker process: start, ask with a time limit, and say how it died."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Any, Self, cast

_NOTHING: Mapping[str, str] = MappingProxyType({})
_LOOK = 0.5  # seconds between looks at whether the process lives
_HERE = Path(__file__).resolve().parent
# This folder as a package of its own: the worker never imports fqfuse unless its engine does, which
# may be that of another checkout. The folder's parent is on the path no longer than that takes.
_START = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
worker = importlib.import_module(sys.argv[2] + ".worker")
sys.path.pop(0)
worker.main()
"""


class WorkerFailed(Exception):  # it is a result of the measurement, not a fault of it
    """The engine raised, crashed or ran out of time; the text is the row of the table.

    ``details`` has `kind`, `what`, `where` and `hint` of an error of fqfuse, else nothing.
    """

    def __init__(self, text: str, details: Mapping[str, str] = _NOTHING) -> None:
        super().__init__(text)
        self.details = details


class WorkerTimedOut(WorkerFailed):
    """It was ended, because it took longer than it was given."""


class WorkerProcess:
    """A worker as a context manager; leaving it ends the process.

    ``threads`` limits every OpenMP and BLAS pool the process may start. ``log`` takes the worker's
    stderr. Modules come from the folder ``modules`` first.
    """

    def __init__(self, threads: int, log: Path, modules: Path | None = None) -> None:
        pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        # as multiprocessing hands it on; the root of the package is no place for modules
        found = [entry for entry in sys.path if entry and Path(entry).resolve() != _HERE.parent]
        path = str(modules) if modules else os.pathsep.join(found)
        environment = {
            **os.environ,
            **dict.fromkeys(pools, str(threads)),
            "PYTHONPATH": path,
        }
        command = [sys.executable, "-P", "-c", _START, str(_HERE.parent), _HERE.name]
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603  (our own program)
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                bufsize=0,
            )
        self._stdin, self._stdout = (
            cast("IO[bytes]", self._process.stdin),
            cast("IO[bytes]", self._process.stdout),
        )

    def ask(self, command: str, seconds: float, **arguments: Any) -> dict[str, Any]:
        """Send a command and return its answer; WorkerFailed says what went wrong instead."""
        request = json.dumps({"command": command, **arguments}) + "\n"
        try:
            self._stdin.write(request.encode())
        except BrokenPipeError:
            raise WorkerFailed(self._death()) from None
        answer: dict[str, Any] = json.loads(
            self._line(command, time.monotonic() + seconds, seconds)
        )
        if "error" in answer:
            raise WorkerFailed(answer["error"], answer.get("details", _NOTHING))
        return answer

    def close(self) -> None:
        """End the process, gently if it listens."""
        self._stdin.close()
        self._stdout.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _line(self, command: str, deadline: float, seconds: float) -> bytes:
        """Read one line; a worker that dies or stays silent past the deadline is a failure.

        A process that the engine forked may live on and hold the pipe open: its end tells no death.
        """
        received = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while not received.endswith(b"\n"):
                dead = self._process.poll() is not None  # asked first: what it wrote is read then
                left = 0.0 if dead else deadline - time.monotonic()
                if not selector.select(min(_LOOK, max(0.0, left))):
                    if dead:
                        raise WorkerFailed(self._death())
                    if left > 0:
                        continue
                    self._process.kill()
                    raise WorkerTimedOut(f"no answer to {command!r} within {seconds:g} s")
                chunk = os.read(self._stdout.fileno(), 65536)
                if not chunk:
                    raise WorkerFailed(self._death())
                received += chunk
        return received

    def _death(self) -> str:
        """Say how the process ended, with the last line it wrote to stderr."""
        code = self._process.wait()
        how = (
            f"crashed by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )
        lines = [
            line.strip()
            for line in self._log.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        return f"{how}: {lines[-1][:200]}" if lines else how
