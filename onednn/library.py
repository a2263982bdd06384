"""Load libdnnl on demand, check its version, and set what belongs to the process or thread: OpenMP threads, caches.

Nothing is loaded on import. `load` returns one `Library` for each file, so handles of different sessions share it.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import BackendUnavailable, InvalidInput
from ..locks import ProcessLock
from .capi import VersionStruct, check, declare
from .discovery import WHEEL, Candidate, candidates, how_to_install, installed_wheel, user_candidate
from .enums import CpuIsa, CpuRuntime
from .openmp import openmp_function, short_waits

__all__ = ["Library", "Version", "effective_isa", "load", "set_threads", "version"]

MINIMUM = (3, 2)
BELOW = (4, 0)


@dataclass(frozen=True, slots=True)
class Version:
    """What `dnnl_version` says; `cpu_runtime` is a plain int when the library is built on a runtime unknown here."""

    major: int
    minor: int
    patch: int
    hash: str
    cpu_runtime: CpuRuntime | int

    def __str__(self) -> str:
        return ".".join(map(str, self.triple))

    @property
    def triple(self) -> tuple[int, int, int]:
        """What versions are compared by."""
        return self.major, self.minor, self.patch


class Library:
    """A loaded libdnnl.

    Attributes:
        c: the declared C functions (`library.c.dnnl_memory_create`, ...).
        path: the file that the dynamic linker mapped.
        source: `user`, `wheel` or `system`.
        version: the `Version`.
    """

    __slots__ = ("_omp_get", "_omp_set", "c", "path", "source", "version")

    def __init__(self, cdll: ctypes.CDLL, path: str, source: str, library_version: Version) -> None:
        self.c = cdll
        self.path = path
        self.source = source
        self.version = library_version
        self._omp_set = self._omp_get = None
        if library_version.cpu_runtime == CpuRuntime.openmp:
            self._omp_set = openmp_function(cdll, "omp_set_num_threads", [ctypes.c_int], None)
            self._omp_get = openmp_function(cdll, "omp_get_max_threads", [], ctypes.c_int)

    def set_threads(self, count: int) -> None:
        """Let the primitives that the *calling* thread creates and executes use `count` OpenMP threads.

        OpenMP keeps this number per thread: call it in every thread that runs a session. A primitive is laid out for
        the number in force when its descriptor is made; use the same number to create and to execute.

        Raises:
            InvalidInput: `count` is below 1.
            BackendUnavailable: the library is not built on OpenMP, and `count` is not what it uses anyway.
        """
        if count < 1:
            raise InvalidInput(f"the number of threads must be at least 1, not {count}")
        if self._omp_set is not None:
            self._omp_set(count)
        elif not (self.version.cpu_runtime == CpuRuntime.sequential and count == 1):
            runtime = self.version.cpu_runtime
            name = runtime.name if isinstance(runtime, CpuRuntime) else f"runtime {runtime}"
            raise BackendUnavailable(
                f"cannot run oneDNN on {count} threads: it is built on {name}, and threads are set through OpenMP only",
                where=self.path,
                hint="use an OpenMP build, such as the one in `fqfuse[onednn]`",
            )

    def max_threads(self) -> int:
        """OpenMP threads that the calling thread's next primitive may use; 1 where the library is not built on OpenMP."""
        return int(self._omp_get()) if self._omp_get is not None else 1

    def effective_isa(self) -> CpuIsa:
        """The instruction sets that oneDNN generates code for: the CPU's, limited by ONEDNN_MAX_CPU_ISA."""
        return CpuIsa(int(self.c.dnnl_get_effective_cpu_isa()))

    def primitive_cache_capacity(self) -> int:
        """Number of primitives that the library keeps for reuse across the process."""
        value = ctypes.c_int()
        check(self.c.dnnl_get_primitive_cache_capacity(ctypes.byref(value)), "get_primitive_cache_capacity")
        return value.value

    def set_primitive_cache_capacity(self, capacity: int) -> None:
        """Set that number; 0 empties and disables the cache, which `PrimitiveDesc.next_impl` needs to advance reliably."""
        check(self.c.dnnl_set_primitive_cache_capacity(capacity), f"set_primitive_cache_capacity({capacity})")

    def __repr__(self) -> str:
        return f"<oneDNN {self.version} from {self.source}: {self.path}>"


_lock = ProcessLock()
_loaded: dict[str, Library] = {}  # by what was handed to the dynamic linker; "" is the default, whichever that became


def load(path: str | os.PathLike[str] | None = None) -> Library:
    """Find, load and check libdnnl; the search order is that of `discovery`. Later calls return the same object.

    Args:
        path: the library's file or its folder; None: FQFUSE_ONEDNN, then the wheel, then the system.

    Raises:
        BackendUnavailable: there is none, it cannot be loaded, or it is not 3.2 <= version < 4. The message says which
            was found where, and what to install.
    """
    with _lock:
        if path is None and "" in _loaded:
            return _loaded[""]
        named = user_candidate(path)
        library = _open(named) if named is not None else _first_usable()
        if path is None:
            _loaded[""] = library
        return library


def version() -> Version:
    """Version of the default library. Raises BackendUnavailable as `load` does."""
    return load().version


def effective_isa() -> CpuIsa:
    """See `Library.effective_isa`; for the default library. Raises BackendUnavailable as `load` does."""
    return load().effective_isa()


def set_threads(count: int) -> None:
    """See `Library.set_threads`; for the default library. Raises BackendUnavailable as `load` does."""
    load().set_threads(count)


def _first_usable() -> Library:
    problems: list[str] = []
    hints: list[str] = []
    for candidate in candidates():
        try:
            return _open(candidate)
        except BackendUnavailable as error:
            if error.where:  # a library is there, but of no use; where nothing is there, the summary below says it
                problems.append(f"{error.what} ({error.where})")
                hints.append(error.hint)
    if not problems:
        wheel = installed_wheel()
        old = f" (the wheel {WHEEL} {wheel} is installed, but holds no oneDNN 3)" if wheel is not None else ""
        raise BackendUnavailable(f"oneDNN is not installed: neither its wheel nor a system library was found{old}", hint=how_to_install())
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
    declare(cdll, path)
    library = Library(cdll, path, candidate.source, found)
    _loaded[candidate.name] = library
    return library


def _cannot_load(candidate: Candidate, reason: str) -> BackendUnavailable:
    """Turn the dynamic linker's message into an error; without a place when there is no such library at all."""
    if candidate.source == "system" and reason.startswith(f"{candidate.name}: cannot open shared object file"):
        return BackendUnavailable(f"the system has no {candidate.name}")
    hint = how_to_install()
    if "libgomp" in reason:
        hint = "install GNU OpenMP with `apt-get install libgomp1` (Debian, Ubuntu) or `dnf install libgomp` (Fedora)"
    return BackendUnavailable(f"oneDNN cannot be loaded: {reason}", where=candidate.name, hint=hint)


def _read_version(cdll: ctypes.CDLL, path: str) -> Version:
    try:
        function = cdll.dnnl_version
    except AttributeError:
        raise BackendUnavailable("this library is not oneDNN: it exports no dnnl_version", where=path, hint=how_to_install()) from None
    function.restype = ctypes.POINTER(VersionStruct)
    function.argtypes = ()
    raw = function().contents
    try:
        runtime: CpuRuntime | int = CpuRuntime(raw.cpu_runtime)
    except ValueError:
        runtime = int(raw.cpu_runtime)
    return Version(raw.major, raw.minor, raw.patch, (raw.hash or b"").decode(), runtime)


class _DlInfo(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def _mapped_file(cdll: ctypes.CDLL, name: str) -> str:
    """The file behind a library that was opened by a bare name; `name` itself when the linker does not tell."""
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
