"""Load libdnnl on demand, and check its version.

Nothing is loaded on import. `load` returns one `Library` for each file, so handles of different
sessions share it.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from ..errors import BackendUnavailable
from ..locks import ProcessLock
from .capi import Version, declare
from .discovery import WHEEL, Candidate, candidates, how_to_install, installed_wheel, user_candidate
from .enums import CpuRuntime
from .library import CPU, Library
from .openmp import short_waits

MINIMUM = (3, 2)
BELOW = (4, 0)
RUNTIMES = (CpuRuntime.openmp, CpuRuntime.sequential)
"""What a library may run its threads on: sessions set their number through OpenMP."""

NAMED_RUNTIMES = (*RUNTIMES, CpuRuntime.sycl)
"""The same of a library that the user names. One on SYCL, as oneDNN's own wheels of today are, has as
many threads as its device, whatever a session asks for, and its numbers are held to ours in part only
(docs/deploy.md): nobody gets it unasked.
"""

_lock = ProcessLock()
_loaded: dict[
    str, Library
] = {}  # by what was handed to the dynamic linker; "" is the default, whichever that became


def load(path: str | os.PathLike[str] | None = None) -> Library:
    """Find, load and check libdnnl; the search order is that of `discovery`. Later calls return the
    same object.

    Args:
        path: the library's file or its folder; None: FQFUSE_ONEDNN, then the wheel, then the
            system.

    Raises:
        BackendUnavailable: there is none, it cannot be loaded, it is not 3.2 <= version < 4, or is
            built on other threads. The message says which was found where, and what to install.
    """
    with _lock:
        if path is None and "" in _loaded:
            return _loaded[""]
        named = user_candidate(path)
        library = _open(named) if named is not None else _first_usable()
        if path is None:
            _loaded[""] = library
        return library


def _first_usable() -> Library:
    problems: list[str] = []
    hints: list[str] = []
    for candidate in candidates():
        try:
            return _open(candidate)
        except BackendUnavailable as error:
            # a library is there, but of no use; where nothing is there, the summary below says it
            if error.where:
                problems.append(f"{error.what} ({error.where})")
                hints.append(error.hint)
    if not problems:
        wheel = installed_wheel()
        old = (
            f" (the wheel {WHEEL} {wheel} is installed, but holds no oneDNN 3)"
            if wheel is not None
            else ""
        )
        raise BackendUnavailable(
            f"oneDNN is not installed: neither its wheel nor a system library was found{old}",
            hint=how_to_install(),
        )
    raise BackendUnavailable("no usable oneDNN: " + "; ".join(problems), hint=hints[0])


def _open(candidate: Candidate) -> Library:
    known = _loaded.get(candidate.name)
    if known is not None:
        return known
    try:
        with short_waits():
            cdll = ctypes.CDLL(candidate.name)
    except OSError as error:
        raise _cannot_load(candidate, str(error)) from error
    path = _mapped_file(cdll, candidate.name)
    found = _read_version(cdll, path)
    if not MINIMUM <= (found.major, found.minor) < BELOW:
        raise BackendUnavailable(
            f"oneDNN {found} is installed, but fqfuse needs at least {MINIMUM[0]}.{MINIMUM[1]} and less than {BELOW[0]}.{BELOW[1]}",
            where=path,
            hint=how_to_install(),
        )
    if found.cpu_runtime not in (NAMED_RUNTIMES if candidate.source == "user" else RUNTIMES):
        names = {known.value: known.name for known in CpuRuntime}
        built = names.get(found.cpu_runtime, f"a runtime of the number {found.cpu_runtime}")
        raise BackendUnavailable(
            f"oneDNN {found} runs its threads on {built}, and fqfuse sets their number through OpenMP",
            where=path,
            hint="use a build on OpenMP (DNNL_CPU_RUNTIME=OMP), such as the one in `fqfuse[onednn]`",
        )
    declare(cdll, path)
    if found.cpu_runtime == CpuRuntime.sycl:
        _check_device(cdll, found, path)
    library = Library(cdll, path, candidate.source, found)
    _loaded[candidate.name] = library
    return library


def _check_device(cdll: ctypes.CDLL, found: Version, path: str) -> None:
    """Raises BackendUnavailable where SYCL finds no CPU."""
    if cdll.dnnl_engine_get_count(CPU) == 0:
        raise BackendUnavailable(
            f"oneDNN {found} runs its threads on sycl, and SYCL finds no CPU device",
            where=path,
            hint="set OCL_ICD_FILENAMES to the libintelocl.so that lies beside it before Python starts,"
            " or use a build on OpenMP, such as the one in `fqfuse[onednn]`",
        )


def _cannot_load(candidate: Candidate, reason: str) -> BackendUnavailable:
    """Turn the dynamic linker's message into an error; without a place when there is no such
    library at all.
    """
    if candidate.source == "system" and reason.startswith(
        f"{candidate.name}: cannot open shared object file"
    ):
        return BackendUnavailable(f"the system has no {candidate.name}", hint=how_to_install())
    hint = how_to_install()
    if "libtbb" in reason or "libsycl" in reason:
        hint = "set LD_LIBRARY_PATH to the folder of the library before Python starts: those that it needs lie beside it"
    if "libgomp" in reason:
        hint = "install GNU OpenMP with `apt-get install libgomp1` (Debian, Ubuntu) or `dnf install libgomp` (Fedora)"
    return BackendUnavailable(f"oneDNN cannot be loaded: {reason}", where=candidate.name, hint=hint)


def _read_version(cdll: ctypes.CDLL, path: str) -> Version:
    try:
        function = cdll.dnnl_version
    except AttributeError:
        raise BackendUnavailable(
            "this library is not oneDNN: it exports no dnnl_version",
            where=path,
            hint=how_to_install(),
        ) from None
    function.restype = ctypes.POINTER(Version)
    function.argtypes = ()
    found: Version = function().contents
    return found


class _DlInfo(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _mapped_file(cdll: ctypes.CDLL, name: str) -> str:
    """The file behind a library that was opened by a bare name; `name` itself when the linker does
    not tell.
    """
    if Path(name).is_absolute():
        return name
    info = _DlInfo()
    try:
        address = ctypes.cast(cdll.dnnl_version, ctypes.c_void_p)
        dladdr = ctypes.CDLL(None).dladdr
    except AttributeError:
        return name
    dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(_DlInfo))
    return os.fsdecode(info.file) if dladdr(address, ctypes.byref(info)) and info.file else name
