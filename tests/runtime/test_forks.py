"""A process forks while its threads run and bind: every child computes the same, none waits for a
lock that stayed in the parent.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

ON_OPENMP = pytest.mark.of_3_2("a library on SYCL does not compute in a forked process")

FORKS = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")  # of forks in threaded processes: that is the test
import fqfuse
from fqfuse.models.digits import digits_model_path, digits_test_set

backend, children = sys.argv[1], int(sys.argv[2])
session = fqfuse.InferenceSession(digits_model_path("fakequantize"), backend, 2)
images = digits_test_set()[0]
answers = {n: session.run(None, {"image": images[:n]})[0].tobytes() for n in range(1, 20)}  # more sizes than stay bound
over = False

def ask(start):
    n = start
    while not over:
        n = n % 19 + 1
        assert session.run(None, {"image": images[:n]})[0].tobytes() == answers[n]

threads = [threading.Thread(target=ask, args=(n,), daemon=True) for n in range(3)]
for thread in threads:
    thread.start()
states = []
for _ in range(children):
    time.sleep(0.003)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a child that waits for ever dies of it
        os._exit(any(session.run(None, {"image": images[:n]})[0].tobytes() != answers[n] for n in (8, 5)))
    states.append(os.waitpid(child, 0)[1])
over = True
for thread in threads:
    thread.join()
assert session.run(None, {"image": images[:3]})[0].tobytes() == answers[3]
print(states.count(0))
"""


@pytest.mark.parametrize("backend", ["numpy", pytest.param("onednn", marks=ON_OPENMP)])
@pytest.mark.parametrize("children", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_forks_while_threads_run(backend: str, children: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKS, backend, str(children)],
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    assert ran.stdout == f"{children}\n", ran.stderr
