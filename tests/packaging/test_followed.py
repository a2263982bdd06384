"""docs/contributing/architecture.md follows one FakeQuantize through the files: each of them takes part, and
there are few.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 30
"""Files from the node in ONNX to the kernel, on each runtime."""

SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import fqfuse
from support.onnx_cases import model, node, random

root, called = Path(fqfuse.__file__).parent, set()
f32 = np.float32

def seen(frame, event, argument):
    called.add(frame.f_code.co_filename)

domain = "org.openvinotoolkit"
nodes = [
    node("FakeQuantize", ["x", "l", "h", "l", "h"], ["xq"], domain=domain, levels=256),
    node("FakeQuantize", ["w", "l", "h", "l", "h"], ["wq"], domain=domain, levels=255),
    node("Conv", ["xq", "wq"], ["c"]),
    node("Relu", ["c"], ["r"]),
    node("FakeQuantize", ["r", "o", "f", "o", "f"], ["q"], domain=domain, levels=256),
    node("Conv", ["q", "wq"]),
]
constants = {"l": f32(-1), "h": f32(1), "o": f32(0), "f": f32(4), "w": random([3, 3, 3, 3])}
proto = model(nodes, inputs={"x": [1, 3, 8, 8]}, constants=constants, domains={domain: 1})
sys.setprofile(seen)
session = fqfuse.InferenceSession(proto, backend=sys.argv[1], threads=1)
session.run(None, {"x": np.zeros((1, 3, 8, 8), f32)})
sys.setprofile(None)
for name in sorted(called):
    if Path(name).is_relative_to(root):
        print(Path(name).relative_to(root).as_posix())
"""


def followed(backend: str) -> list[str]:
    text = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")
    section = text.split("## One FakeQuantize, file by file", 1)[1].split("\n## ", 1)[0]
    shared, numpy, onednn = (
        re.findall(r"^\| `([\w/]+\.py)` \|", part, flags=re.MULTILINE)
        for part in re.split(r"^(?:Then|or) on .*:$", section, flags=re.MULTILINE)
    )
    return shared + (numpy if backend == "numpy" else onednn)


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
def test_a_fake_quantize_goes_through_the_files_that_are_told(backend: str) -> None:
    files = followed(backend)
    assert len(files) <= MOST
    command = [sys.executable, "-c", SCRIPT, backend]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT / "tests")
    assert ran.returncode == 0, ran.stderr
    # `formula.py` and `types.py` hold definitions, most without code.
    assert set(files) - set(ran.stdout.split()) <= {"plan/types.py", "plan/attributes.py"}
