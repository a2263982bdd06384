"""oneDNN 2.6 for the tests of `onednn-v2`; without it they are skipped, and say what to install."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from onednn_legacy.legacy import HOW, Legacy, interpreter


def started(**how: bool) -> Legacy:
    python = interpreter()
    if python is None:
        pytest.skip(f"no oneDNN 2.6: {HOW}")
    library = Legacy(python, **how)
    if "missing" in library.hello:
        library.close()
        pytest.skip(f"no {library.hello['missing']} beside {python}: {HOW}")
    assert library.hello["version"] == [2, 6, 0]
    return library


@pytest.fixture(scope="session")
def legacy() -> Iterator[Legacy]:
    library = started()
    assert not library.hello["amx"]
    yield library
    library.close()


@pytest.fixture(scope="session")
def legacy_on_amx() -> Iterator[Legacy]:
    """The library as it runs on a CPU with AMX."""
    library = started(vnni_at_most=False)
    if not library.hello["amx"]:
        library.close()
        pytest.skip("this CPU has no AMX, the tests that take `legacy` hold all that 2.6 runs here")
    yield library
    library.close()
