"""oneDNN 2.6 for the tests of `onednn-v2`; without it they are skipped, and say what to install."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from onednn_legacy.legacy import HOW, Legacy, interpreter


@pytest.fixture(scope="session")
def legacy() -> Iterator[Legacy]:
    python = interpreter()
    if python is None:
        pytest.skip(f"no oneDNN 2.6: {HOW}")
    library = Legacy(python)
    if "missing" in library.hello:
        library.close()
        pytest.skip(f"no {library.hello['missing']} beside {python}: {HOW}")
    assert library.hello["version"] == [2, 6, 0]
    if not library.hello["vnni"]:
        library.close()
        pytest.skip(
            f"without VNNI int8 products saturate (ISA {library.hello['isa']:#x}): see the tests of the ISA emulation"
        )
    yield library
    library.close()
