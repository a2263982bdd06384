"""Plans that were compiled before, in a folder of the user's own: a second start compiles nothing.

An entry is a plan file (sealed, written at once, verified when it is read) under a name that is the digest
of all that decides what the compiler makes: the model with its external data, versions, and settings.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from .errors import InvalidInput, PlanError
from .files import checked_path, unreadable
from .frontend import DEFAULT, Budgets, Source
from .frontend.content import content_of, external_content_of
from .plan.file import SCHEMA, files_of, read_plan, save_plan
from .plan.types import Plan

VARIABLE: Final = "FQFUSE_CACHE"
"""The environment variable that names the folder where no argument does; without either there is no cache."""

MOST_BYTES: Final = 4 << 30
"""What all entries of a folder take at most: beyond it those that were used least recently go."""

Folder = str | os.PathLike[str]

_ENTRY: Final = re.compile(r"[0-9a-f]{64}\.plan\.onnx")
_OTHERS_WRITE: Final = 0o022


def cached(
    folder: Folder | None,
    source: Source,
    compiled: Callable[[], Plan],
    *,
    target: str = "onednn-v3",
    dynamic: str | None = None,
    budgets: Budgets = DEFAULT,
    approximate: tuple[str, ...] = (),
) -> Plan:
    """What the compiler makes of a model: from the cache, or made now and kept there.

    Args:
        folder: of the cache; None: as the environment variable says.
        source: the model.
        compiled: compiles it,
        target, dynamic, budgets, approximate: with these settings, see `fqfuse.compile`.

    Raises:
        InvalidInput: the folder is none, belongs to somebody else, or others may write into it.
        FqfuseError: what `compiled` raises.
    """
    folder = folder if folder is not None else os.environ.get(VARIABLE) or None
    if folder is None:
        return compiled()
    place = _checked(folder)
    try:
        told = repr((_compiler(), SCHEMA, target, dynamic, budgets, approximate))
        begun = _digest(hashlib.blake2b(told.encode(), digest_size=32), content_of(source))
        key = _digest(begun, external_content_of(source)).hexdigest()
    except (OSError, InvalidInput):  # the compiler says better what is wrong
        return compiled()
    path = place / f"{key}.plan.onnx"
    # an entry that is not there, or was damaged, is made now
    with contextlib.suppress(PlanError, InvalidInput):
        plan = read_plan(path)
        with contextlib.suppress(OSError):
            os.utime(path)
        return plan
    plan = compiled()
    with contextlib.suppress(OSError, InvalidInput):
        if _digest(begun, external_content_of(source)).hexdigest() == key:  # else it was replaced
            _keep(path, plan)
    return plan


def _checked(folder: Folder) -> Path:
    """The folder, made where there is none; nobody else may write into it.

    Raises:
        InvalidInput: it is none, or not the user's own.
    """
    place = Path(os.path.realpath(checked_path(folder)))
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = place.stat()
    except OSError as error:
        raise unreadable(folder, error, "a folder for the cache") from error
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & _OTHERS_WRITE):
        raise InvalidInput(
            "others may write into the folder of the cache, and so choose what runs here",
            where=str(folder),
            hint="name a folder that belongs to you alone (chmod 700), or one that does not exist yet",
        )
    return place


def _digest(begun: hashlib.blake2b, pieces: Iterable[bytes | memoryview]) -> hashlib.blake2b:
    """A digest that goes on with these pieces and their lengths: no two lists of pieces look alike."""
    digest = begun.copy()
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    return digest


@functools.cache
def _compiler() -> list[tuple[str, int, int]]:
    """The compiler itself: its files, with size and time, which say more than a version does."""
    root = Path(__file__).parent
    folders = [root / name for name in ("frontend", "passes", "composer", "plan", "ir")]
    files = [*root.glob("*.py"), *(file for folder in folders for file in folder.rglob("*.py"))]
    told = [(file, file.stat()) for file in sorted(files)]
    return [(str(file.relative_to(root)), at.st_size, at.st_mtime_ns) for file, at in told]


def _keep(path: Path, plan: Plan) -> None:
    """Writes an entry, and removes what is too much; a plan that cannot be kept still runs."""
    try:
        save_plan(plan, path)
    except (InvalidInput, PlanError) as error:
        warnings.warn(f"the plan is not kept in the cache: {error}", stacklevel=2)
        return
    used = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            if _ENTRY.fullmatch(entry.name):
                with contextlib.suppress(OSError, InvalidInput):
                    files = files_of(entry.path)
                    size = sum(file.stat().st_size for file in files)
                    used.append((entry.stat().st_mtime_ns, entry.name, size, files))
    total = sum(size for _, _, size, _ in used)
    for _, _, size, files in sorted(used):
        if total <= MOST_BYTES:
            break
        total -= size
        for file in files:
            with contextlib.suppress(OSError):
                file.unlink()
