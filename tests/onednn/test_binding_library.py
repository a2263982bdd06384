"""Finding, loading and checking the library; what is said when that fails; threads; constants."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numpy.linalg import _umath_linalg

from fqfuse.errors import BackendUnavailable, InvalidInput
from fqfuse.onednn import capi, discovery, enums, loading, memory, primitive, primitive_desc
from fqfuse.onednn import library as library_module
from fqfuse.onednn.capi import OneDnnError, Status, Unimplemented, Version
from fqfuse.onednn.discovery import Candidate
from fqfuse.onednn.enums import CpuIsa, CpuRuntime
from fqfuse.onednn.library import Library


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`load` starts from scratch; what it finds does not stay."""
    monkeypatch.setattr(loading, "_loaded", {})
    monkeypatch.delenv(discovery.ENVIRONMENT_VARIABLE, raising=False)


def only(monkeypatch: pytest.MonkeyPatch, *found: Candidate) -> None:
    def candidates() -> Iterator[Candidate]:
        yield from found

    monkeypatch.setattr(loading, "candidates", candidates)


# ---- loading ----


def test_the_library_is_within_range(library: Library) -> None:
    assert (3, 2) <= (library.version.major, library.version.minor) < (4, 0)
    assert (
        str(library.version)
        == f"{library.version.major}.{library.version.minor}.{library.version.patch}"
    )
    assert Path(library.path).is_file()
    assert loading.load() is loading.load()


def test_import_loads_nothing() -> None:
    code = """
import fqfuse.onednn.loading, fqfuse.onednn.primitive
maps = open("/proc/self/maps").read()
print("libdnnl" in maps, "libgomp" in maps)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]


@pytest.mark.usefixtures("nothing_loaded")
def test_path_by_argument_and_by_environment(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    by_argument = loading.load(library.path)
    assert by_argument.source == "user"
    assert by_argument.path == str(Path(library.path).resolve())
    (tmp_path / "libdnnl.so.3").symlink_to(library.path)
    monkeypatch.setenv(discovery.ENVIRONMENT_VARIABLE, str(tmp_path))
    by_environment = loading.load()
    assert by_environment is by_argument
    assert loading.load() is by_environment
    monkeypatch.setenv(discovery.ENVIRONMENT_VARIABLE, "")
    assert discovery.user_candidate(None) is None


def test_the_wheel_is_found_before_the_system(library: Library) -> None:
    if discovery.installed_wheel() is None:
        pytest.skip(f"the wheel {discovery.WHEEL} is not installed")
    first = next(discovery.candidates())
    assert first.source == "wheel"
    assert Path(first.name).name.startswith("libdnnl.so.3")
    assert library.source in ("wheel", "user")


def test_candidates_are_in_order_and_not_repeated(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed = tmp_path / "lib" / discovery.SONAME
    listed.parent.mkdir()
    listed.symlink_to(library.path)
    monkeypatch.setattr(discovery.sys, "prefix", str(tmp_path))
    found = list(discovery.candidates())
    sources = [candidate.source for candidate in found]
    assert sources == sorted(sources, key=["wheel", "system"].index)
    assert len({candidate.name for candidate in found}) == len(found)
    assert Candidate(str(listed.resolve()), "wheel") in found


def test_what_another_wheel_writes_over_is_the_last_of_the_wheels_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`onednn` has a `libdnnl.so.3` as well, in the same folder."""
    names = ["libdnnl.so.3", "libdnnl.so", "libdnnl.so.3.2"]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    files = [SimpleNamespace(name=name, locate=lambda n=name: tmp_path / n) for name in names]
    monkeypatch.setattr(discovery.importlib.metadata, "files", lambda _: files)
    found = [Path(candidate.name).name for candidate in discovery.candidates()]
    assert found[:2] == ["libdnnl.so.3.2", "libdnnl.so.3"]


@pytest.mark.usefixtures("nothing_loaded")
def test_without_the_wheel_only_the_system_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def absent(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(discovery.importlib.metadata, "files", absent)
    monkeypatch.setattr(discovery.importlib.metadata, "version", absent)
    monkeypatch.setattr(discovery.sys, "prefix", str(tmp_path))
    for function in ("getuserbase", "getusersitepackages"):
        monkeypatch.setattr(discovery.site, function, lambda: str(tmp_path))
    monkeypatch.setattr(discovery.site, "getsitepackages", list)
    monkeypatch.setattr(discovery.ctypes.util, "find_library", lambda name: f"lib{name}.so.99")
    assert discovery.installed_wheel() is None
    assert [(found.name, found.source) for found in discovery.candidates()] == [
        ("libdnnl.so.3", "system"),
        ("libdnnl.so.99", "system"),
    ]


@pytest.mark.of_3_2(
    "it sets threads of OpenMP, or loads by itself what only the environment finds on SYCL"
)
def test_the_linkers_own_search_finds_the_file(library: Library) -> None:
    """A library opened by its bare name, as the system's is, still tells where it was found."""
    code = (
        "import fqfuse.onednn.loading as l, fqfuse.onednn.discovery as d;"
        "found = l._open(d.Candidate('libdnnl.so.3', 'system')); print(found.path, found.source)"
    )
    folder = str(Path(library.path).parent)
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"LD_LIBRARY_PATH": folder},
    )
    path, source = ran.stdout.split()
    assert Path(path) == Path(folder, discovery.SONAME)  # a wheel has a copy under each name
    assert source == "system"


# ---- what is said when it fails ----


@pytest.mark.usefixtures("nothing_loaded")
def test_missing_path(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "libdnnl.so.3"
    with pytest.raises(BackendUnavailable, match="the path given does not exist") as caught:
        loading.load(missing)
    assert caught.value.where == str(missing)


@pytest.mark.usefixtures("nothing_loaded")
def test_a_wrong_environment_variable_is_named_and_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(discovery.ENVIRONMENT_VARIABLE, str(tmp_path))
    with pytest.raises(
        BackendUnavailable, match=r"FQFUSE_ONEDNN is a folder that holds no libdnnl\.so\.3"
    ):
        loading.load()


@pytest.mark.usefixtures("nothing_loaded")
def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    file = tmp_path / "libdnnl.so.3"
    file.write_text("not a library")
    with pytest.raises(BackendUnavailable, match="cannot be loaded") as caught:
        loading.load(file)
    assert caught.value.where == str(file)


@pytest.mark.usefixtures("nothing_loaded")
def test_a_library_that_is_not_onednn() -> None:
    with pytest.raises(BackendUnavailable, match="is not oneDNN: it exports no dnnl_version"):
        loading.load(_umath_linalg.__file__)  # any shared object will do


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize("numbers", [(2, 7, 3), (3, 1, 0), (4, 0, 0)], ids=str)
def test_wrong_version(
    library: Library, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(
        loading, "_read_version", lambda *_: Version(*numbers, b"", CpuRuntime.openmp)
    )
    only(monkeypatch, Candidate(library.path, "wheel"))
    with pytest.raises(BackendUnavailable) as caught:
        loading.load()
    message = str(caught.value)
    assert ".".join(map(str, numbers)) in message
    assert library.path in message, "which was found, and where"
    assert "at least 3.2 and less than 4.0" in message


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize("numbers", [(3, 2, 0), (3, 13, 2)], ids=str)
def test_right_version(
    library: Library, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, int, int]
) -> None:
    runtime = library.version.cpu_runtime
    monkeypatch.setattr(loading, "_read_version", lambda *_: Version(*numbers, b"", runtime))
    assert loading.load(library.path).version.minor == numbers[1]


@pytest.mark.usefixtures("nothing_loaded")
def test_nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, Candidate("libdnnl-no-such-thing.so.3", "system"))
    monkeypatch.setattr(loading, "installed_wheel", lambda: None)
    with pytest.raises(BackendUnavailable, match="oneDNN is not installed") as caught:
        loading.load()
    if sys.platform == "linux":
        assert (
            'pip install "fqfuse[onednn]"' in caught.value.hint
            or "x86_64 only" in caught.value.hint
        )


@pytest.mark.usefixtures("nothing_loaded")
def test_a_wheel_of_onednn_2_is_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, Candidate("libdnnl-no-such-thing.so.3", "system"))
    monkeypatch.setattr(loading, "installed_wheel", lambda: "2022.2.1")
    with pytest.raises(
        BackendUnavailable, match=r"onednn-cpu-gomp 2022\.2\.1 is installed, but holds no oneDNN 3"
    ):
        loading.load()


@pytest.mark.usefixtures("nothing_loaded")
def test_the_wheel_does_not_exist_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery.platform, "machine", lambda: "aarch64")
    only(monkeypatch)
    with pytest.raises(BackendUnavailable) as caught:
        loading.load()
    assert "x86_64 only" in caught.value.hint
    assert "aarch64" in caught.value.hint
    assert "pip install" not in caught.value.hint


@pytest.mark.usefixtures("nothing_loaded")
def test_missing_libgomp(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> Any:
        raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(loading, "ctypes", SimpleNamespace(CDLL=refuse))
    with pytest.raises(BackendUnavailable, match=r"libgomp\.so\.1") as caught:
        loading.load(library.path)
    assert "apt-get install libgomp1" in caught.value.hint


@pytest.mark.of_3_2(
    "it sets threads of OpenMP, or loads by itself what only the environment finds on SYCL"
)
@pytest.mark.usefixtures("nothing_loaded")
def test_an_unusable_candidate_does_not_hide_a_usable_one(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libdnnl.so.3").write_text("broken")
    only(
        monkeypatch,
        Candidate(str(tmp_path / "libdnnl.so.3"), "wheel"),
        Candidate(library.path, "system"),
    )
    assert loading.load().source == "system"


def test_a_library_without_a_function_we_need(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(capi.PROTOTYPES, "no_such_function", "handle")
    with pytest.raises(BackendUnavailable, match="exports no dnnl_no_such_function"):
        capi.declare(ctypes.CDLL(library.path), library.path)


# ---- threads and instruction sets ----


@pytest.mark.of_3_2(
    "it sets threads of OpenMP, or loads by itself what only the environment finds on SYCL"
)
def test_threads_belong_to_the_calling_thread(library: Library) -> None:
    before = library.max_threads()
    seen: list[int] = []

    def other() -> None:
        library.set_threads(1)
        seen.append(library.max_threads())

    library.set_threads(3)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [1]
    assert library.max_threads() == 3
    library.set_threads(before)


def test_the_setting_reaches_the_runtime_that_the_library_uses(library: Library) -> None:
    if library.version.cpu_runtime != CpuRuntime.openmp:
        pytest.skip("the library is not built on OpenMP")
    code = """
import os, sys
import numpy as np
from fqfuse.onednn.enums import AlgKind, Arg
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.loading import load
from fqfuse.onednn.memory import Memory
from fqfuse.onednn.primitive_desc import describe
from fqfuse.onednn.primitive import ExecArgs, Primitive
library = load()
library.set_threads(int(sys.argv[1]))
engine = Engine(library)
x = Memory.wrap(engine, np.zeros((1, 64, 64, 64), np.float32))
before = len(os.listdir("/proc/self/task"))
desc = describe(engine, "eltwise", x.desc, x.desc, alg=AlgKind.eltwise_tanh)
Primitive(desc).execute(Stream(engine), ExecArgs(desc, {Arg.SRC: x, Arg.DST: x}))
print(len(os.listdir("/proc/self/task")) - before)
"""
    for count in (1, 2, 3):
        ran = subprocess.run(
            [sys.executable, "-c", code, str(count)], capture_output=True, text=True, check=True
        )
        assert int(ran.stdout) == count - 1, "workers beside the calling thread"


def test_no_threads_is_refused(library: Library) -> None:
    with pytest.raises(InvalidInput, match="at least 1, not 0"):
        library.set_threads(0)


def test_a_sequential_library_has_one_thread(library: Library) -> None:
    version = Version(3, 2, 0, b"", CpuRuntime.sequential)
    sequential = Library(library.c, library.path, "user", version)
    sequential.set_threads(2)
    assert sequential.max_threads() == 1


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize(
    ("runtime", "named"),
    [(CpuRuntime.opencl, "opencl"), (CpuRuntime.tbb, "tbb"), (77, "number 77")],
)
def test_threads_of_another_runtime_are_refused_when_the_library_is_loaded(
    library: Library, runtime: int, named: str, monkeypatch
) -> None:
    """So that a session on `auto` runs on NumPy, and says why."""
    monkeypatch.setattr(loading, "_loaded", {})
    monkeypatch.setattr(loading, "_read_version", lambda *_: Version(3, 13, 2, b"", runtime))
    with pytest.raises(BackendUnavailable, match=f"oneDNN 3.13.2 runs its threads on .*{named}"):
        loading.load(library.path)


@pytest.mark.usefixtures("nothing_loaded")
def test_sycl_is_taken_where_the_user_names_it_alone(library: Library, monkeypatch) -> None:
    monkeypatch.setattr(loading, "_loaded", {})
    version = Version(3, 13, 2, b"", CpuRuntime.sycl)
    monkeypatch.setattr(loading, "_read_version", lambda *_: version)
    for source in ("wheel", "system"):
        with pytest.raises(BackendUnavailable, match="runs its threads on sycl"):
            loading._open(Candidate(library.path, source))
    assert loading._open(Candidate(library.path, "user")).version == version


@pytest.mark.usefixtures("nothing_loaded")
def test_sycl_without_a_device_is_refused_when_the_library_is_loaded(
    library: Library, monkeypatch
) -> None:
    """As where the driver of OpenCL's CPU is not installed, or not named in the environment."""
    monkeypatch.setattr(loading, "_loaded", {})
    version = Version(3, 13, 2, b"", CpuRuntime.sycl)
    monkeypatch.setattr(loading, "_read_version", lambda *_: version)
    assert loading.load(library.path).version.cpu_runtime == CpuRuntime.sycl  # this one has a CPU
    monkeypatch.setattr(loading, "_loaded", {})
    monkeypatch.setattr(loading, "CPU", 2)  # and no GPU
    with pytest.raises(BackendUnavailable, match="SYCL finds no CPU device") as caught:
        loading.load(library.path)
    assert "OCL_ICD_FILENAMES" in caught.value.hint


def test_results_are_there_when_execute_returns_on_sycl(library: Library) -> None:
    """Whatever a library computes in other threads: there is a wait for the stream behind each primitive."""
    calls: list[str] = []

    class Function:
        restype = None

        def __init__(self, name: str, status: int) -> None:
            self.name, self.status = name, status

        def __call__(self, *_: object) -> int:
            calls.append(self.name)
            return self.status

    class Functions(dict):
        """Stands for the library's functions."""

    for status, expected in (
        (0, ["dnnl_primitive_execute", "dnnl_stream_wait"]),
        (1, ["dnnl_primitive_execute"]),
    ):
        calls.clear()
        made = Functions(
            {
                "dnnl_primitive_execute": Function("dnnl_primitive_execute", status),
                "dnnl_stream_wait": Function("dnnl_stream_wait", 0),
            }
        )
        sycl = Library(made, library.path, "user", Version(3, 13, 2, b"", CpuRuntime.sycl))
        assert primitive._execute_function(sycl)(1, 2, 3, 4) == status
        assert calls == expected


def test_a_library_on_sycl_does_not_compute_in_a_forked_process(
    library: Library, monkeypatch
) -> None:
    """Its threads stay in the parent: a child would wait for them for ever."""
    sycl, sequential = (
        Library(library.c, library.path, "user", Version(3, 13, 2, b"", runtime))
        for runtime in (CpuRuntime.sycl, CpuRuntime.sequential)
    )
    sycl.check_process()
    monkeypatch.setattr(library_module, "generation", lambda: 1)
    sequential.check_process()
    with pytest.raises(BackendUnavailable, match="SYCL cannot compute in a forked process"):
        sycl.check_process()


@pytest.mark.parametrize("name", ["SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_VNNI"])
def test_effective_isa_follows_the_environment(library: Library, name: str) -> None:
    wanted = CpuIsa[name.lower()]
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {name}")
    code = "from fqfuse.onednn.loading import load; print(int(load().effective_isa()))"
    named = {"ONEDNN_MAX_CPU_ISA": name, discovery.ENVIRONMENT_VARIABLE: library.path}
    environment = {**os.environ, **named}  # where SYCL finds its driver
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert CpuIsa(int(ran.stdout)) == wanted
    assert wanted.has_vnni == ("VNNI" in name)


def test_instruction_sets_of_newer_libraries_stay_representable() -> None:
    newer = CpuIsa(0x100000 | CpuIsa.avx512_core_amx)
    assert int(newer) == 0x100FEF
    assert newer & CpuIsa.avx512_core_vnni == CpuIsa.avx512_core_vnni
    assert newer.has_vnni
    assert not CpuIsa.avx512_core.has_vnni


# ---- constants and errors ----

# Where the library's own text for a value is another word than the member's name.
OTHER_WORDS = {
    "FormatKind": {"opaque": "unknown fmt_kind"},
    "CpuRuntime": {"openmp": "OpenMP", "tbb": "TBB", "opencl": "OpenCL", "sycl": "unknown"},
}
FUNCTIONS = {
    capi.Status: "status2str",
    enums.DataType: "dt2str",
    enums.AlgKind: "alg_kind2str",
    enums.FormatKind: "fmt_kind2str",
    enums.CpuRuntime: "runtime2str",
    enums.ScratchpadMode: "scratchpad_mode2str",
    enums.FpmathMode: "fpmath_mode2str",
}


SINGLE = {
    "engine_kind2str": (library_module.CPU, "cpu"),
    "fmt_tag2str": (memory._ANY, "any"),
    "prop_kind2str": (primitive_desc._ALWAYS["prop"], "forward_inference"),
}


def text_of(library: Library, function: str, value: int) -> str:
    to_text = ctypes.CDLL(library.path)[f"dnnl_{function}"]
    to_text.restype = ctypes.c_char_p
    return to_text(value).decode()


@pytest.mark.parametrize("kind", FUNCTIONS, ids=lambda kind: kind.__name__)
def test_constants_are_those_of_the_library(library: Library, kind: Any) -> None:
    words = dict(OTHER_WORDS.get(kind.__name__, {}))
    if kind is CpuRuntime and library.version.cpu_runtime == CpuRuntime.sycl:
        words["sycl"] = "SYCL"  # which other builds do not know
    for member in kind:
        assert text_of(library, FUNCTIONS[kind], int(member)).removeprefix("dnnl_") == words.get(
            member.name, member.name
        )


@pytest.mark.parametrize("function", SINGLE)
def test_a_single_constant_is_the_librarys(library: Library, function: str) -> None:
    value, text = SINGLE[function]
    assert text_of(library, function, value) == text


def test_error_says_what_where_and_which_status() -> None:
    with pytest.raises(Unimplemented) as caught:
        capi.check(3, "convolution u8[1,2,3,4]", "Conv_7, Relu_8")
    assert caught.value.status is Status.unimplemented
    assert str(caught.value).startswith(
        "oneDNN: convolution u8[1,2,3,4] failed with unimplemented (3): no implementation"
    )
    assert "Conv_7, Relu_8" in str(caught.value)
    capi.check(0, "nothing")
    with pytest.raises(OneDnnError, match="status 77, unknown"):
        capi.check(77, "something newer")


def test_error_survives_pickling() -> None:
    error = capi.failure(1, "a matmul", "MatMul_1")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own object
    assert (type(copy), str(copy), copy.status) == (OneDnnError, str(error), Status.out_of_memory)
