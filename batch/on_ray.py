"""Parts on the actors of Ray: `ray.data` hands them out, and hands them out again where a node is
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import FqfuseError
from .job import Job, Record, part_from, part_text, record_from
from .libraries import library
from .parts import Part


def run_parts(
    job: Job, parts: Iterable[Part], workers: int, done: Callable[[Record], None]
) -> None:
    """Runs parts on so many actors, each with a session of its own; see `local.run_parts`.

    The cluster is the one that this process is connected to, that `RAY_ADDRESS` names, or one of
    this machine's own. Its nodes see the data and the output under the same paths, and have fqfuse.

    Raises:
        FqfuseError: what an actor raises.
    """
    ray = library("ray", "the engine ray is Ray Data")
    data = library("ray.data", "the engine ray is Ray Data")
    texts = [{"part": part_text(part)} for part in parts]
    if not texts:
        return
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    data.DataContext.get_current().enable_progress_bars = False
    records = data.from_items(texts, override_num_blocks=len(texts)).map_batches(
        _Actor,
        fn_constructor_args=(job,),
        batch_size=1,
        compute=data.ActorPoolStrategy(size=min(workers, len(texts))),
        num_cpus=job.threads,
    )
    try:
        for row in records.iter_rows():
            done(record_from(row["record"]))
    except Exception as error:
        cause = _own(error)
        if cause is None:
            raise
        raise cause from error


class _Actor:
    """A worker on a node."""

    def __init__(self, job: Job) -> None:
        from .worker import Worker

        self._worker = Worker(job)

    def __call__(self, batch: Any) -> dict[str, list[str]]:
        """Texts of parts to texts of records."""
        return {"record": [self._worker.run(part_from(text)).text() for text in batch["part"]]}


def _own(error: BaseException | None) -> FqfuseError | None:
    """The error of fqfuse that Ray has wrapped."""
    while error is not None:
        if isinstance(error, FqfuseError):
            return error
        error = getattr(error, "cause", None) or error.__cause__
    return None
