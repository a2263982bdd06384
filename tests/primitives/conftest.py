"""The real library for the tests that compare with it; without it they are skipped, and say why."""

from __future__ import annotations

import pytest

from fqfuse.errors import BackendUnavailable
from fqfuse.onednn.library import Engine, Library
from fqfuse.onednn.loading import load

THREADS = 2  # the machine that runs the tests is shared
RULES_OF = (3, 2)


@pytest.fixture(scope="session")
def library() -> Library:
    try:
        loaded = load()
    except BackendUnavailable as error:
        pytest.skip(f"no oneDNN: {error}")
    loaded.set_threads(THREADS)
    return loaded


@pytest.fixture(scope="session")
def engine(library: Library) -> Engine:
    return Engine(library)


@pytest.fixture
def of_the_rules(library: Library) -> None:
    """For tests that compare statuses: the rules are those of one version."""
    if library.version.triple[:2] != RULES_OF:
        pytest.skip(f"the rules are of oneDNN 3.2, and this is {library.version}")
