"""What a process may use of its machine: the processors that it is bound to, and no more than its
container pays for; its memory.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

from .budget import RunBudget

_GROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def default_threads() -> int:
    """Threads of a session whose caller names none: one for each processor that this process may
    use, at least one.

    A quota counts in whole processors: threads that exceed it together are all stopped until the
    next period.
    """
    bound = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    paid = quota()
    return bound if paid is None else max(1, min(bound, int(paid)))


def run_budget(limit: int | None = None) -> RunBudget:
    """A run of so many bytes; of all memory that this process may use for None."""
    return RunBudget(_all_bytes() if limit is None else limit)


def machine_bytes(control_groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Bytes of memory that this process may use: the machine's, within its container's limit; a
    terabyte where the system tells neither.

    Args:
        control_groups, own: as of `quota`.
    """
    settings = _settings(control_groups, own, "memory", "memory.max", "memory.limit_in_bytes")
    limits = [int(words[0]) for words in settings if words[0].isdigit()]
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        limits.append(1 << 40)
    return min(limits)


_all_bytes = functools.cache(machine_bytes)  # steps on NumPy have executors of their own


def quota(control_groups: Path = _GROUPS, own: Path = _OWN) -> float | None:
    """Processors' worth of time that Linux's control groups grant this process (`docker run
    --cpus`, Kubernetes' limits); None: no limit.

    Args:
        control_groups: where they are mounted.
        own: names those of this process, a line each: number, controllers, path.
    """
    settings = _settings(
        control_groups, own, "cpu", "cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"
    )
    # "max" and -1: no limit
    plain = (words for words in settings if len(words) == 2 and all(map(str.isdigit, words)))
    return min(
        (int(words[0]) / int(words[1]) for words in plain if int(words[0]) and int(words[1])),
        default=None,
    )


def _settings(
    control_groups: Path, own: Path, controller: str, second: str, *first: str
) -> Iterator[list[str]]:
    """The words of a setting in each group that the process is in; `second` is its file of version
    2, `first` those of version 1.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _words(control_groups, path, (second,))
        elif controller in controllers.split(","):
            for mount in dict.fromkeys((control_groups / controller, control_groups / controllers)):
                yield from _words(mount, path, first)


def _words(mount: Path, path: str, files: tuple[str, ...]) -> Iterator[list[str]]:
    """The words of the files in a group and in those that it is in; in a container its own group
    may be mounted as the root.
    """
    folder = mount / path.lstrip("/")
    while folder.is_relative_to(mount):
        try:
            words = " ".join((folder / name).read_text() for name in files).split()
        except OSError:
            words = []
        if words:
            yield words
        folder = folder.parent
