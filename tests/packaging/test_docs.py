"""The documents are true: links lead somewhere, and what the README shows runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *(path for path in ROOT.glob("[a-z]*/README.md")),
    }
)
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


GUIDES = ("commands", "fix", "why-slow", "why-wrong", "troubleshooting")
RECIPES = {
    "onnxruntime": ("onnxruntime", "sympy"),
    "nncf": ("nncf",),
    "pytorch": ("onnxscript", "torch", "torchao"),
}

SCREENS = re.compile(r"\S+  (compiled for|int8 against f32|on a CPU with) ?")
"""The first line of what `inspect`, `compare` and `simulate` print."""


def blocks(language: str, text: str = README) -> list[str]:
    """Fenced blocks of a document in this language, in order."""
    return [body for name, body in FENCE.findall(text) if name == language]


def anchors(document: Path) -> set[str]:
    """The anchors that a Markdown renderer gives to the headings of `document`."""
    prose = FENCE.sub("", document.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+?)\s*$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def quoted_screens() -> list[tuple[str, list[str]]]:
    """The screens in all documents, each with the name of its document and without the command in front."""
    found = []
    for document in DOCUMENTS:
        for _, body in FENCE.findall(document.read_text(encoding="utf-8")):
            lines = [line for line in body.splitlines() if not line.startswith("$ fqfuse ")]
            if lines and SCREENS.match(lines[0]):
                found.append((document.relative_to(ROOT).as_posix(), lines))
    return found


def quotes(lines: list[str], whole: list[str]) -> bool:
    """True where `lines` are a part of `whole`, line for line; `...` stands for one or more of its lines."""
    parts = "\n".join(lines).split("\n...")
    pattern = r"\n(?:.*\n)+?".join(re.escape(part.strip("\n")) for part in parts)
    return re.match(pattern + r"(?:\n|\Z)", "\n".join(whole) + "\n") is not None


@pytest.mark.parametrize(
    ("lines", "held"),
    [
        (["a", "b", "c", "d"], True),
        (["a", "b"], True),
        (["a", "...", "d"], True),
        (["a", "b", "..."], True),
        (["a", "...", "c", "..."], True),
        (["a", "c"], False),
        (["b", "c"], False),
        (["a", "...", "d", "c"], False),
        (["a", "...", "e"], False),
        (["a", "b", "c", "d", "..."], False),
        (["a", "b", "...", "c"], False),
    ],
)
def test_what_a_quote_is(lines: list[str], held: bool) -> None:
    assert quotes(lines, list("abcd")) is held


def test_a_screen_in_a_document_is_that_of_a_golden_file() -> None:
    screens = quoted_screens()
    assert {name for name, _ in screens} >= {"README.md", "docs/why-slow.md", "docs/why-wrong.md"}
    for name, lines in screens:
        model = lines[0].split("  ", 1)[0].removesuffix(".onnx")
        golden = ROOT / "tests" / "golden" / "verdict" / f"{model}.txt"
        assert golden.is_file(), f"{name} shows a screen of {model}, which no golden file has"
        _, _, whole = golden.read_text(encoding="utf-8").partition("# -----\n")
        told = [lines[0].replace(f"{model}.onnx  ", f"{model}  "), *lines[1:]]
        assert quotes(told, whole.splitlines()), f"{name} shows another screen than {golden.name}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_within_the_repository_resolve(document: Path) -> None:
    prose = FENCE.sub("", document.read_text(encoding="utf-8"))
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", link):
            continue  # the web is not asked: a test must not fail with it
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_layout_names_each_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| \[(\w+)/\]", text, flags=re.MULTILINE))
    hidden = {"build", "dist", "site"}
    present = {
        path.name for path in ROOT.iterdir() if path.is_dir() and re.fullmatch(r"[a-z]+", path.name)
    } - hidden
    assert listed == present


def test_make_targets_in_documents_exist() -> None:
    targets = set(
        re.findall(
            r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE
        )
    )
    for document in DOCUMENTS:
        named = set(re.findall(r"`make ([\w-]+)`", document.read_text(encoding="utf-8")))
        assert named <= targets, f"{document.name}: {named - targets}"


def test_ci_finds_the_test_command() -> None:
    tests = README.split("\n## Tests", 1)[1].split("\n## ", 1)[0]
    assert FENCE.findall(tests) == [("sh", "make test\n")], (
        ".ci/run takes the first sh block of the section Tests"
    )


def run_commands(text: str, folder: Path) -> str:
    """Runs the sh blocks, line by line, and gives what they print."""
    commands = [
        line
        for block in blocks("sh", text)
        for line in block.splitlines()
        if not line.startswith("make ")
    ]
    assert any(line.startswith("fqfuse ") for line in commands)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    printed = ""
    for command in commands:
        ran = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        printed += ran.stdout
    return printed


def run_python(text: str, folder: Path) -> str:
    """Runs the Python blocks as one program, and gives what it prints."""
    program = "\n".join(blocks("python", text))  # later blocks use what earlier ones made
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", *(f"docs/{guide}.md" for guide in GUIDES)])
def test_the_commands_and_the_python_of_a_document_run(tmp_path: Path, name: str) -> None:
    # All blocks, in order, as a reader would type them at the root of a checkout; the folder holds
    # nothing but the models.
    (tmp_path / "models").symlink_to(ROOT / "models")
    text = (ROOT / name).read_text(encoding="utf-8")
    run_commands(text, tmp_path)
    printed = run_python(text, tmp_path)
    if name == "README.md":
        assert printed.endswith("(1, 10)\n")


@pytest.mark.slow
@pytest.mark.parametrize("tool", RECIPES)
def test_the_recipe_of_a_quantizer_runs_and_the_commands_behind_it(
    tmp_path: Path, tool: str
) -> None:
    missing = [name for name in RECIPES[tool] if find_spec(name) is None]
    if missing:
        pytest.skip(f"the recipe needs {', '.join(missing)}: benchmarks/README.md says where")
    (tmp_path / "models").symlink_to(ROOT / "models")
    text = (ROOT / "docs" / f"quantize-{tool}.md").read_text(encoding="utf-8")
    run_python(text, tmp_path)
    assert "100 % in int8" in run_commands(text, tmp_path)
