"""Rules of the house that no linter knows: the public names, the targets of the Makefile."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from hypothesis import settings

import fqfuse
from fqfuse.models.digits import digits_model_path

ROOT = Path(__file__).parents[2]
MAX_ARCHITECTURE_LINES = 180
MAX_FUNCTION_LINES = 60
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = (
    "accuracy",
    "batch",
    "benchmarks",
    "cli",
    "composer",
    "exporter",
    "frontend",
    "ir",
    "measure",
    "models",
    "onednn",
    "passes",
    "plan",
    "primitives",
    "report",
    "runtime",
)


def test_architecture_stays_short() -> None:
    lines = (
        (ROOT / "docs" / "contributing" / "architecture.md")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    assert len(lines) <= MAX_ARCHITECTURE_LINES


def test_public_names_are_those_that_the_page_documents() -> None:
    section = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)", section, flags=re.MULTILINE))
    assert set(fqfuse.__all__) == documented
    assert [name for name in fqfuse.__all__ if not hasattr(fqfuse, name)] == []


def test_help_and_dir_list_the_public_names() -> None:
    listed = re.findall(r"^    (\w+)  +\S", fqfuse.__doc__, flags=re.MULTILINE)
    assert sorted(listed) == dir(fqfuse) == sorted([*fqfuse.__all__, "__version__"])
    assert fqfuse.__version__ == PROJECT["project"]["version"]


def test_rooms_alone_list_what_they_export() -> None:
    listing = [
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"^__all__\b", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ]
    assert listing
    assert [path for path in listing if not path.endswith("/__init__.py")] == []


def test_functions_stay_short() -> None:
    """With their docstrings."""
    long = [
        f"{folder}/{path.name}:{node.lineno} {node.name}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert long == []


def test_version_is_the_changelogs_newest() -> None:
    newest = re.search(
        r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert newest is not None
    assert newest[1] == PROJECT["project"]["version"]


def test_make_lists_every_target_that_is_no_file() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)", makefile, flags=re.MULTILINE)[1].split()
    described = re.findall(r"^([\w-]+):.*?## ", makefile, flags=re.MULTILINE)
    assert sorted(phony) == sorted(described)


def test_import_pulls_in_no_framework() -> None:
    # `import fqfuse` must be quick (.ci/run measures it) and must not need what only benchmarks,
    # tests and model builders need.
    heavy = ["torch", "sklearn", "onnxruntime", "openvino", "nncf", "scipy", "pytest"]
    code = f"import sys, fqfuse; sys.exit(', '.join(sorted(set({heavy}) & set(sys.modules))) or 0)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_plan_that_was_saved_is_run_without_networkx(tmp_path: Path) -> None:
    # The graph's index takes as long to import as numpy; who runs plans makes no graph.
    fqfuse.save_plan(fqfuse.compile(digits_model_path("qdq")), tmp_path / "plan.onnx")
    code = """
import sys, numpy as np, fqfuse, fqfuse.ir.graph
plan = fqfuse.load_plan(sys.argv[1])
session = fqfuse.InferenceSession(plan, "numpy")
shape = [size if isinstance(size, int) else 2 for size in plan.type(plan.inputs[0]).shape]
session.run(None, {plan.inputs[0]: np.zeros(shape, np.float32)})
sys.exit("networkx" in sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "plan.onnx")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def imported_distributions(folder: Path) -> set[str]:
    """Third-party modules that the files below `folder` import, in whatever function."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.split(".")[0])
    return names - sys.stdlib_module_names - {"fqfuse"}


def test_each_imported_library_is_a_declared_dependency() -> None:
    # A library that only some extra brings would be missed in the dev environment, and break the
    # first user.
    declared = {re.split(r"[^\w-]", line)[0] for line in PROJECT["project"]["dependencies"]}
    imported = set().union(
        *(
            imported_distributions(ROOT / folder)
            for folder in FOLDERS
            if folder not in {"benchmarks", "models"}
        )
    )
    called = {"google": "protobuf", "fast_sugiyama": "fast-sugiyama"}
    assert {called.get(name, name) for name in imported} == declared


def test_fuzzing_draws_anew() -> None:
    assert settings.get_profile("default").derandomize
    assert not settings.get_profile("fuzz").derandomize
