"""What a reader must know of the machine and the software to compare figures."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("fqfuse", "onnxruntime", "openvino", "nncf", "onednn-cpu-gomp", "numpy", "onnx")
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16")


def describe_environment() -> dict[str, Any]:
    """Return CPU, instruction sets that matter to int8, load, packages and the commit under test
    (Linux).
    """
    fields = dict(
        _field(line) for line in Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    )
    flags = set(fields.get("flags", "").split())
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": fields.get("model name", platform.processor()),
        "cpu_family_model": f"{fields.get('cpu family', '?')}/{fields.get('model', '?')}",
        "flags": [flag for flag in _FLAGS if flag in flags],
        "cpus": len(os.sched_getaffinity(0)),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "kernel": platform.release(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": commit_of(Path(__file__).resolve().parent.parent),
    }


def _field(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key.strip(), value.strip()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def commit_of(root: Path) -> str:
    """The commit of a checkout, with "-dirty" where tracked files differ from it; outside a checkout
    the folder's name.
    """
    git = ["git", "-C", str(root), "-c", f"safe.directory={root}"]
    command = [*git, "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or root.name
