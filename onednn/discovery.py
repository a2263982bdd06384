"""Where a libdnnl may be: the candidates in the order in which they are tried.

1. the path the user gives, as argument or in the environment variable FQFUSE_ONEDNN (a file, or a
folder that holds one);
2. the wheel `onednn-cpu-gomp` (it installs `libdnnl.so.3` into `<prefix>/lib`, outside the package
folders);
3. the system: the dynamic linker's own search, then `ctypes.util.find_library`.

A path that the user gives is the only candidate: falling through to another library would hide the
mistake.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import os
import platform
import site
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BackendUnavailable

ENVIRONMENT_VARIABLE = "FQFUSE_ONEDNN"
WHEEL = "onednn-cpu-gomp"
SONAME = "libdnnl.so.3"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A name to hand to the dynamic linker (`dlopen`) and where it comes from: `user`, `wheel` or
    `system`.
    """

    name: str
    source: str


def how_to_install() -> str:
    """The sentence that tells a user without the library what to do, for this platform."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return (
            'install the wheel with `pip install "fqfuse[onednn]"`, '
            f"or set {ENVIRONMENT_VARIABLE} to the path of a {SONAME} (oneDNN 3.2 or later)"
        )
    return (
        f"the wheel {WHEEL} exists for Linux on x86_64 only (this is {sys.platform} on {platform.machine()}): "
        f"build oneDNN 3.2 or later and set {ENVIRONMENT_VARIABLE} to its path, or use the NumPy runtime"
    )


def user_candidate(path: str | os.PathLike[str] | None) -> Candidate | None:
    """The library the user names, or None.

    Args:
        path: the argument; where it is None, the environment variable FQFUSE_ONEDNN counts, unless
            empty.

    Raises:
        BackendUnavailable: the path does not exist, or is a folder without a libdnnl.
    """
    origin = (
        "the path given"
        if path is not None
        else f"the path in the environment variable {ENVIRONMENT_VARIABLE}"
    )
    given = os.fspath(path) if path is not None else os.environ.get(ENVIRONMENT_VARIABLE, "")
    if not given:
        return None
    found = Path(given).expanduser()
    if found.is_dir():
        inside = [found / SONAME, found / "libdnnl.so", found / "lib" / SONAME]
        hits = [entry for entry in inside if entry.is_file()]
        if not hits:
            raise BackendUnavailable(
                f"{origin} is a folder that holds no {SONAME}",
                where=given,
                hint=f"name the {SONAME} itself",
            )
        found = hits[0]
    if not found.is_file():
        raise BackendUnavailable(
            f"{origin} does not exist",
            where=given,
            hint=f"give the path of a {SONAME}, or none: {how_to_install()}",
        )
    return Candidate(str(found.resolve()), "user")


def installed_wheel() -> str | None:
    """Version of the installed wheel, or None: a wheel without a libdnnl.so.3 is too old, which is
    worth a word.
    """
    try:
        return importlib.metadata.version(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None


def _wheel_files() -> Iterator[Path]:
    """Files of the installed distribution first; then the folders into which pip puts a wheel's
    data files.
    """
    try:
        files = importlib.metadata.files(WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    # the full name first: another wheel, such as `onednn`, writes its own library over the short one
    named = (file for file in files if file.name.startswith(SONAME))
    for file in sorted(named, key=lambda file: len(file.name), reverse=True):
        yield Path(str(file.locate()))
    packages = [*site.getsitepackages(), site.getusersitepackages()]
    for folder in [
        Path(sys.prefix) / "lib",
        Path(site.getuserbase()) / "lib",
        *map(Path, packages),
    ]:
        yield folder / SONAME


def candidates() -> Iterator[Candidate]:
    """The wheel's library and the system's, best first, without repetition."""
    seen: set[str] = set()
    for file in _wheel_files():
        resolved = str(file.resolve())
        if resolved not in seen and file.is_file():
            seen.add(resolved)
            yield Candidate(resolved, "wheel")
    yield Candidate(SONAME, "system")
    other = ctypes.util.find_library("dnnl")
    if other is not None and other != SONAME:
        yield Candidate(other, "system")
