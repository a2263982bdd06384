"""One engine in a process of its own (`process.py` starts it): reads JSON commands from stdin, answers one JSON line each.

    {"command": "load", "engine": ..., "path": ..., "threads": n, "feeds": npz, "stacked": bool}
                                                                                   session, and its first run
    {"command": "time", "runs": n, "warmup": n}                                    seconds of each run
    {"command": "outputs", "to": npz}                                              outputs for every feed
    {"command": "profile", "runs": n}                                              fqfuse's time of each step
    {"command": "peak", "threads": n}                                              int8 operations a second of oneDNN's matmul
    {"command": "memory"}                                                          resident bytes now and at their peak

An engine's exception is answered as {"error": ...}; a crash ends the process and is the
coordinator's to report.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from .arrays import load_arrays, save_arrays, split_feeds
from .engines import ENGINES, Opened, Unavailable


class Worker:
    """State of the process: at most one open session and its feeds."""

    def __init__(self) -> None:
        self._opened: Opened | None = None
        self._feeds: list[dict[str, Any]] = []

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one command. ValueError if there is no such command."""
        arguments = {name: value for name, value in request.items() if name != "command"}
        commands: dict[str, Callable[..., dict[str, Any]]] = {
            "load": self.load,
            "time": self.time,
            "outputs": self.outputs,
            "profile": self.profile,
            "peak": self.peak,
            "memory": self.memory,
        }
        if request["command"] not in commands:
            raise ValueError(f"no command {request['command']!r}")
        return commands[request["command"]](**arguments)

    def load(
        self,
        engine: str,
        path: str,
        threads: int,
        feeds: str,
        *,
        stacked: bool = True,
        coded: bool | None = None,
    ) -> dict[str, Any]:
        """Import the library, open the model, run once; seconds of each, which tell compilation
        from first-run work. ``coded``: see `Engine`.
        """
        spec = ENGINES[engine]
        arrays = load_arrays(Path(feeds))
        self._feeds = list(split_feeds(arrays)) if stacked else [arrays]
        before = resident()["resident"]
        started = time.perf_counter()
        spec.load_library()
        imported = time.perf_counter()
        self._opened = spec.open(Path(path), threads, coded)
        opened = time.perf_counter()
        self._opened.run(self._feeds[0])
        done = time.perf_counter()
        seconds = {
            "import_s": imported - started,
            "load_s": opened - imported,
            "first_run_s": done - opened,
        }
        about = {"version": spec.version(), "note": self._opened.note}
        return {**seconds, "resident_before": before, **about}

    def time(self, runs: int, warmup: int) -> dict[str, Any]:
        """Seconds of ``runs`` runs on the first feed, after ``warmup`` runs that wake threads and
        caches.
        """
        run, feed = self._session().run, self._feeds[0]
        for _ in range(warmup):
            run(feed)
        seconds = []
        for _ in range(runs):
            started = time.perf_counter()
            run(feed)
            seconds.append(time.perf_counter() - started)
        return {"seconds": seconds}

    def outputs(self, to: str) -> dict[str, Any]:
        """Write ``output_<i>`` stacked over all feeds."""
        run = self._session().run
        # A copy: an engine may hand out its own buffer and write the next result into it.
        results = [[np.array(output) for output in run(feed)] for feed in self._feeds]
        stacked = {
            f"output_{i}": np.concatenate(outputs)
            for i, outputs in enumerate(zip(*results, strict=True))
        }
        save_arrays(Path(to), stacked)
        return {}

    def profile(self, runs: int) -> dict[str, Any]:
        """How long each step of fqfuse's session takes on the first feed, and which runtime it is."""
        session = self._session().session
        found: dict[str, Any] = session.profile(self._feeds[0], runs).as_dict()
        return {"backend": session.backend, "backend_reason": session.backend_reason, **found}

    def peak(self, threads: int) -> dict[str, Any]:
        """See ``peak.measure_peak``."""
        # by its own name: only here the worker needs the package that it comes with
        found: dict[str, Any] = import_module("fqfuse.measure.peak").measure_peak(threads)
        return found

    def memory(self) -> dict[str, Any]:
        """Resident bytes of this process."""
        return resident()

    def _session(self) -> Opened:
        if self._opened is None:
            raise ValueError("load a model first")
        return self._opened


def resident() -> dict[str, int]:
    """Return resident bytes now (``resident``) and at their highest (``peak``), from Linux's /proc.

    Not ``getrusage``: its maximum survives exec and so begins with the parent's.
    """
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        name: int(fields[key].split()[0]) * 1024
        for name, key in (("resident", "VmRSS"), ("peak", "VmHWM"))
    }


def serve(commands: Iterable[str], answers: TextIO) -> None:
    """Answer commands until the input ends."""
    worker = Worker()
    for line in commands:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001  # whatever a peer raises becomes a row of the table
            answer = {"error": _in_one_line(error), "details": _details(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _in_one_line(error: Exception) -> str:
    """Name and first line of an error; peers write pages."""
    name = "unavailable" if isinstance(error, Unavailable) else type(error).__name__
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{name}: {first[:300]}" if first else name


def _details(error: Exception) -> dict[str, str]:
    """The kind and the texts of an error of fqfuse, known by its attributes."""
    names = ("what", "where", "hint")
    if not all(isinstance(getattr(error, name, None), str) for name in names):
        return {}
    return {"kind": type(error).__name__, **{name: getattr(error, name) for name in names}}


def _commands(stream: TextIO) -> Iterator[str]:
    """The lines of a stream. Where it ends while a command is being carried out, the coordinator
    has ended, however that was, and nobody waits for the answer: the process ends there and then.
    """
    waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    idle = threading.Event()

    def read() -> None:
        for line in stream:
            waiting.put(line)
        waiting.put(None)
        if not idle.is_set():
            os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    while True:
        idle.set()
        line = waiting.get()
        idle.clear()
        if line is None:
            return
        yield line


def main() -> None:
    """Serve on stdin and stdout. What libraries print goes to stderr instead, so that it cannot
    garble an answer; stdin is empty for them: a process that one of them forks closes it, which would
    wait for ever for the thread that reads commands there.
    """
    commands, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    serve(_commands(commands), answers)
