"""What a process may use of its machine: the processors that it is bound to, and no more than its container's quota pays for; memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["default_threads", "machine_bytes", "quota"]


def default_threads() -> int:
    """Threads of a session whose caller names none: one for each processor that this process may use, at least one.

    A quota counts in whole processors: threads that exceed it together are all stopped until the next period.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    paid = quota()
    return bound if paid is None else max(1, min(bound, int(paid)))


def machine_bytes() -> int:
    """Bytes of the machine's memory; a terabyte where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 40


def quota(control_groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Processors' worth of time that Linux's control groups grant this process (`docker run --cpus`, Kubernetes' limits); None: no limit.

    Args:
        control_groups: where they are mounted.
        own: names those of this process, a line each: number, controllers, path.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    found: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found += _limits(control_groups, path, ("cpu.max",))
        elif "cpu" in controllers.split(","):
            for mount in (control_groups / "cpu", control_groups / controllers):
                found += _limits(mount, path, ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    return min(found, default=None)


def _limits(mount: Path, path: str, files: tuple[str, ...]) -> Iterator[float]:
    """The limits of a group and of those that it is in; in a container its own group may be mounted as the root."""
    folder = mount / path.lstrip("/")
    while folder.is_relative_to(mount):
        try:
            words = " ".join((folder / name).read_text() for name in files).split()
        except OSError:
            words = []
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[0]) and int(words[1]):  # "max" and -1: no limit
            yield int(words[0]) / int(words[1])
        folder = folder.parent
