"""What the wheel holds: every folder of the package with its data, no tests, and the metadata that
users see.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from setuptools.command.egg_info import FileList

ROOT = Path(__file__).parents[2]
NOT_SHIPPED = {"tests", "benchmarks", "docs"}
NOT_SOURCE = (".*", "build", "dist", "*.egg-info", "__pycache__", "_native.*")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def package_folders() -> dict[str, Path]:
    """Import name -> folder, for each folder with an `__init__.py` that belongs into the wheel."""
    found = {"fqfuse": ROOT}
    for init in ROOT.glob("[a-z]*/**/__init__.py"):
        parts = init.parent.relative_to(ROOT).parts
        if parts[0] not in NOT_SHIPPED | {"build", "dist"}:
            found[".".join(("fqfuse", *parts))] = init.parent
    return found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy: a stale build/ in the checkout would leak modules that no
    longer exist into it.
    """
    return built(tmp_path_factory.mktemp("wheel") / "tree")


def built(tree: Path, **environment: str) -> zipfile.ZipFile:
    """The wheel of a copy in a new folder."""
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    target = tree.parent / "dist"
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        str(target),
        str(tree),
    ]
    ran = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


def shipped(wheel: zipfile.ZipFile) -> set[str]:
    """Files of the wheel below fqfuse/, without the metadata."""
    return {name for name in wheel.namelist() if name.startswith("fqfuse/")}


def test_listed_packages_are_the_folders_with_an_init() -> None:
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(package_folders()), (
        "[tool.setuptools] packages: a folder missing there is not in the wheel"
    )


def test_no_module_lies_in_a_folder_without_an_init() -> None:
    lost = [
        path.relative_to(ROOT).as_posix()
        for top in package_folders().values()
        if top != ROOT
        for path in top.rglob("*.py")
        if not (path.parent / "__init__.py").exists()
    ]
    assert lost == []


@pytest.mark.slow
def test_wheel_holds_each_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    modules = {
        f"fqfuse/{path.relative_to(ROOT).as_posix()}"
        for folder in package_folders().values()
        for path in folder.glob("*.py")
    }
    assert {name for name in shipped(wheel) if name.endswith(".py")} == modules
    outside = {name.split("/")[0] for name in wheel.namelist()}
    assert outside == {"fqfuse", f"fqfuse-{PROJECT['project']['version']}.dist-info"}, (
        "a generic name would land in site-packages"
    )


@pytest.mark.slow
def test_wheel_holds_the_data_and_the_typing_marker(wheel: zipfile.ZipFile) -> None:
    data = {
        f"fqfuse/{folder}/{path.name}"
        for folder in ("models/data", "report/html/assets", "report/schemas")
        for path in (ROOT / folder).iterdir()
    }
    assert {Path(name).suffix for name in data} >= {
        *(".onnx", ".html", ".css", ".js", ".json"),
    }
    assert {name for name in shipped(wheel) if not name.endswith((".py", ".so"))} == data | {
        "fqfuse/py.typed"
    }


@pytest.mark.slow
def test_wheel_holds_the_kernels_for_every_python(wheel: zipfile.ZipFile) -> None:
    if shutil.which("cc") is None:
        pytest.skip("not installed: a compiler")
    assert [name for name in shipped(wheel) if name.endswith(".so")] == [
        "fqfuse/onednn/_native.abi3.so"
    ]
    assert "-cp311-abi3-" in Path(str(wheel.filename)).name


@pytest.mark.slow
def test_without_a_compiler_the_wheel_lacks_them_alone(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    bare = built(tmp_path / "tree", CC="false")
    assert shipped(bare) == {name for name in shipped(wheel) if not name.endswith(".so")}
    bare.extractall(tmp_path / "unpacked")
    code = "import fqfuse.cli, sys; sys.argv[1:] = ['--version']; fqfuse.cli.main()"
    where = {**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")}
    # -S, and what site would find by hand: an editable installation's finder comes first
    found = [path for path in sys.path if path.endswith("-packages")]
    where["PYTHONPATH"] += "".join(os.pathsep + path for path in found)
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], env=where, capture_output=True, text=True, check=False
    )
    assert "without kernels in C" in ran.stdout, ran.stderr


def test_each_source_of_the_extension_is_listed() -> None:
    (extension,) = PROJECT["tool"]["setuptools"]["ext-modules"]
    found = [path.relative_to(ROOT).as_posix() for path in (ROOT / "onednn/native").glob("*.c")]
    assert extension["sources"] == sorted(found)
    assert extension["depends"] == sorted(
        path.relative_to(ROOT).as_posix() for path in (ROOT / "onednn/native").glob("*.h")
    )


@pytest.mark.slow
def test_wheel_metadata(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra", [])) == {"onednn", "batch", "ray", "bench", "dev"}
    onednn = [
        line for line in metadata.get_all("Requires-Dist", []) if line.startswith("onednn-cpu-gomp")
    ]
    assert len(onednn) == 1
    assert "platform_machine" in onednn[0], "pip would fail on a machine for which no wheel exists"
    licence = [entry for entry in wheel.namelist() if entry.endswith("licenses/LICENSE")]
    assert "Version 2.0, January 2004" in wheel.read(*licence).decode()


def test_sdist_leaves_out_what_benchmarks_and_tests_leave_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks and rows of the benchmarks are gigabytes."""
    kept = ["benchmarks/networks/bert.py", "tests/golden/a/b.txt", "docs/run.md"]
    kept += ["onednn/native/module.c", "onednn/native/works.h"]
    left = ["benchmarks/build/bert-f32.onnx", "benchmarks/build/batch/a/0.parquet"]
    left += ["tests/__pycache__/a.pyc", ".venv/a.py", "build/lib/a.py", "onednn/_native.abi3.so"]
    for name in kept + left:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    files = FileList()
    for line in (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            files.process_template_line(line)
    assert sorted(name.replace(os.sep, "/") for name in files.files) == sorted(kept)
