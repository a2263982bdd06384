"""The real library for the tests that have it as their oracle; without it they are skipped, and say
why.
"""

from __future__ import annotations

import pytest
from support.binding_order import Runner
from support.runtime_oracle import Oracle

from fqfuse.errors import BackendUnavailable
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.loading import load


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    try:
        library = load()
    except BackendUnavailable as error:
        pytest.skip(f"no oneDNN: {error}")
    library.set_threads(2)
    engine = Engine(library)
    return Oracle(Runner(engine, Stream(engine)))
