"""The real library for every test in this folder; without it they are skipped, and say why."""

from __future__ import annotations

import pytest

from fqfuse.errors import BackendUnavailable
from fqfuse.onednn.library import Engine, Library, Stream
from fqfuse.onednn.loading import load

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
