"""The real library for every test in this folder; without it they are skipped, and say why."""

from __future__ import annotations

import pytest

from fqfuse.errors import BackendUnavailable
from fqfuse.onednn import kernels, native
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Engine, Library, Stream
from fqfuse.onednn.loading import load
from fqfuse.onednn.native import LEVELS, missing

NOT_CALLED = "plain C, not called"
THREADS = 2  # the machine that runs the tests is shared


@pytest.fixture(scope="session")
def library() -> Library:
    try:
        loaded = load()
    except BackendUnavailable as error:
        pytest.skip(f"no oneDNN: {error}")
    loaded.set_threads(THREADS)
    return loaded


@pytest.fixture
def in_c() -> None:
    """For tests that need our functions in C, which an installation without a compiler lacks."""
    if missing():
        pytest.skip(f"no functions in C: {missing()}")


@pytest.fixture(params=list(LEVELS))
def level(
    library: Library,
    in_c: None,  # noqa: ARG001
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """Our functions in C are taken for the instruction sets of one level."""
    name: str = request.param
    needs = LEVELS[name]
    if library.effective_isa() & needs != needs:
        pytest.skip(f"this CPU has no {name}")
    # where these are slow they are not called; their bytes are the same
    monkeypatch.setattr(native, "LEVELS", {NOT_CALLED: CpuIsa.default, **LEVELS})
    monkeypatch.setattr(kernels, "LEVELS", native.LEVELS)
    monkeypatch.setattr(Library, "effective_isa", lambda _: needs)
    return name


@pytest.fixture
def without_amx(library: Library) -> None:
    """For tests of what the library's code for VNNI does, for which it has other code with AMX."""
    if library.effective_isa().has_amx:
        pytest.skip("this CPU has AMX, for which oneDNN has other code")


@pytest.fixture(scope="session")
def engine(library: Library) -> Engine:
    return Engine(library)


@pytest.fixture(scope="session")
def stream(engine: Engine) -> Stream:
    return Stream(engine)
