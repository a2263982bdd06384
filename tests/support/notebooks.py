"""Runs the notebooks of docs/notebooks without Jupyter: each cell as Python, lines that begin with `!`
as commands of the shell.

`python -m support.notebooks docs/notebooks/*.ipynb` runs them in a folder of their own and stores what
they print.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read(path: Path) -> dict[str, Any]:
    """The document of a notebook."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def executed(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Runs the cells one behind the other in the working folder: each cell of code, and what it
    printed.

    Raises:
        What a cell raises; CalledProcessError where a command fails.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                _run("".join(cell["source"]), names)
            yield cell, printed.getvalue()


def _run(source: str, names: dict[str, Any]) -> None:
    if source.startswith("!"):
        for line in source.splitlines():
            print(_commanded(line.removeprefix("!")), end="")
        return
    exec(compile(source, "cell", "exec"), names)  # noqa: S102  (what a notebook is)


def _commanded(line: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    ran = subprocess.run(
        ["/bin/sh", "-ec", line], capture_output=True, text=True, check=False, env=environment
    )
    if ran.returncode:
        raise subprocess.CalledProcessError(ran.returncode, line, ran.stdout, ran.stderr)
    return ran.stdout


def _stored(path: Path) -> None:
    notebook = read(path)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, (cell, text) in enumerate(executed(notebook), 1):
            lines = text.splitlines(keepends=True)
            output = {"output_type": "stream", "name": "stdout", "text": lines}
            cell["outputs"], cell["execution_count"] = [output] if lines else [], number
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        _stored(Path(name).resolve())
