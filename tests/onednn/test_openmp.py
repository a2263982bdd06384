"""How long OpenMP's threads wait awake: our number, unless the user's environment says otherwise,
and nothing is left in it.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fqfuse.onednn.openmp import SPINS, short_waits

LOAD = """
import os, subprocess, sys
before = dict(os.environ)
from fqfuse.onednn.loading import load
load()
assert dict(os.environ) == before
assert "GOMP_SPINCOUNT" in before or "GOMP_SPINCOUNT" not in subprocess.run(["env"], stdout=subprocess.PIPE, text=True, check=True).stdout
"""


def settings(**given: str) -> dict[str, str]:
    """What GNU OpenMP says of its settings when fqfuse loads it."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))
    }
    environment = {**kept, "OMP_DISPLAY_ENV": "VERBOSE", **given}
    found = subprocess.run(
        [sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    lines = [line.split("]")[-1].split("=", 1) for line in found.stderr.splitlines() if "=" in line]
    return {name.strip(): value.strip().strip("'") for name, value in lines}


@pytest.mark.of_3_2(
    "it sets threads of OpenMP, or loads by itself what only the environment finds on SYCL"
)
@pytest.mark.usefixtures("library")
def test_threads_spin_for_a_short_while() -> None:
    assert settings()["GOMP_SPINCOUNT"] == str(SPINS)


@pytest.mark.of_3_2(
    "it sets threads of OpenMP, or loads by itself what only the environment finds on SYCL"
)
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "given", [{"GOMP_SPINCOUNT": "77"}, {"GOMP_SPINCOUNT": "77", "OMP_WAIT_POLICY": "ACTIVE"}]
)
def test_the_users_number_counts(given: dict[str, str]) -> None:
    assert settings(**given)["GOMP_SPINCOUNT"] == "77"


@pytest.mark.of_3_2(
    "it sets threads of OpenMP, or loads by itself what only the environment finds on SYCL"
)
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("policy", "atleast", "atmost"), [("ACTIVE", SPINS + 1, None), ("PASSIVE", 0, 0)]
)
def test_the_users_policy_counts(policy: str, atleast: int, atmost: int | None) -> None:
    spins = settings(OMP_WAIT_POLICY=policy)["GOMP_SPINCOUNT"]
    count = sys.maxsize if spins == "INFINITY" else int(spins)
    assert atleast <= count
    assert atmost is None or count <= atmost


def test_the_environment_is_put_back_when_loading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)

    def fail() -> None:
        assert os.environ["GOMP_SPINCOUNT"] == str(SPINS)
        raise OSError("no such library")

    with pytest.raises(OSError, match="no such library"), short_waits():
        fail()
    assert "GOMP_SPINCOUNT" not in os.environ
