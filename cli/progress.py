"""A progress bar on stderr for what takes longer than a moment; on a terminal only."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_PATIENCE = 1.0  # seconds without a word


class Progress:
    """Shows what is being done, from the first second on; disappears at the end.

    Args:
        total: how many times `advance` will be called; None: unknown.
        still: draws once in two seconds only, beside what is being measured.
    """

    def __init__(self, total: int | None = None, *, still: bool = False) -> None:
        self._total = total
        self._rate = 0.5 if still else 10.0
        self._done = 0
        self._text = ""
        self._bar: Bar | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer = threading.Timer(_PATIENCE, self._start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = (
                    None  # a timer that has fired and waits for the lock finds nothing to do
                )
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def say(self, text: str) -> None:
        """What is being done from now on."""
        with self._lock:
            self._text = printable(text)
            self._show()

    def expect(self, total: int) -> None:
        """How many times `advance` will be called, where that was not known at first."""
        with self._lock:
            self._total = total
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], total=total)

    def advance(self) -> None:
        """One of `total` is done."""
        with self._lock:
            self._done += 1
            self._show()

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=self._text, completed=self._done)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
        )
        with self._lock:
            if self._timer is None:
                return
            self._bar = Bar(
                *columns,
                console=Console(stderr=True),
                transient=True,
                refresh_per_second=self._rate,
            )
            self._bar.add_task(self._text, total=self._total, completed=self._done)
            self._bar.start()
