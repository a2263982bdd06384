"""What every test may use: golden text files and the Hypothesis profiles.

A golden file holds one case: the input, a line `# -----`, the expected text. A test names a folder
below tests/golden:

    @pytest.mark.golden("fold_constants")
    def test_fold_constants(golden):
        golden.check(str(transform(golden.input)))

and runs once for each file in it. `pytest --update-golden` writes the expected halves anew; read
the diff before you commit it.

`pytest --quick` runs a sample: of each test with many cases a few, from the first to the last, and
Hypothesis tests on fewer examples. `pytest --rest` runs what `--quick -m 'not slow'` does not: the
other cases, slow tests, and again those that draw more examples. `--third 1` (or 2, 3) leaves every
third test of that.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings
from support.codes import has_avx512, has_vnni
from support.refusals import look_at_refusals

from fqfuse.onednn.loading import load

QUICK_CASES = 2
"""A test with more runs that many of them with --quick."""

GOLDEN = Path(__file__).parent / "golden"
SEPARATOR = "# -----"

# Timing on a shared machine says nothing about a test, hence no deadline. `make test` and `make
# test-all` draw the same examples every time, so that a failure belongs to the change under test;
# `make fuzz` looks for new ones.
settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=10)
# a profile inherits what it does not say
settings.register_profile("fuzz", deadline=None, derandomize=False, max_examples=3000)
settings.load_profile("default")

look_at_refusals()


@dataclass(frozen=True)
class GoldenCase:
    """One golden file: its input, and a check of the actual text against the expected half."""

    path: Path
    update: bool

    @property
    def name(self) -> str:
        """The case's name: the file's name without its suffix."""
        return self.path.stem

    @property
    def input(self) -> str:
        """The text before the separator, without the newline in front of it."""
        return self._halves()[0]

    def check(self, actual: str) -> None:
        """Fail unless `actual` is the expected text; trailing white space at the end of either does
        not count.
        """
        given, expected = self._halves()
        if self.update:
            self.path.write_text(f"{given}\n{SEPARATOR}\n{actual.rstrip()}\n", encoding="utf-8")
            return
        if expected is None:
            pytest.fail(
                f"{self.path} has no expected half: run `pytest --update-golden`, then read what it wrote",
                pytrace=False,
            )
        assert actual.rstrip() == expected.rstrip(), (
            f"{self.path} differs: if the new text is right, run `pytest --update-golden`"
        )

    def _halves(self) -> tuple[str, str | None]:
        lines = self.path.read_text(encoding="utf-8").splitlines()
        if SEPARATOR not in lines:
            return "\n".join(lines).rstrip(), None
        cut = lines.index(SEPARATOR)
        return "\n".join(lines[:cut]), "\n".join(lines[cut + 1 :])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden, --quick and --rest."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the expected half of the golden files from the actual text",
    )
    few = f"of tests with more than {QUICK_CASES} cases run that many, and Hypothesis on fewer examples"
    parser.addoption("--quick", action="store_true", help=few)
    others = "run what `--quick -m 'not slow'` leaves out or runs on fewer examples"
    parser.addoption("--rest", action="store_true", help=others)
    third = "of what is left run each third test, from the first, second or third one on"
    parser.addoption("--third", type=int, choices=(1, 2, 3), help=third)


def pytest_configure(config: pytest.Config) -> None:
    """Before test modules are imported: they ask the profile how many examples they draw."""
    if config.getoption("quick"):
        settings.load_profile("quick")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `of_3_2(why)` holds what other versions of oneDNN, such as `FQFUSE_ONEDNN` may name, do
    otherwise, one marked `of_vnni(why)` or `of_avx512(why)` what its kernels on older CPUs do otherwise.
    """
    for name, there, called in (
        ("of_vnni", has_vnni, "VNNI"),
        ("of_avx512", has_avx512, "AVX-512"),
    ):
        marker = item.get_closest_marker(name)
        if marker is not None and not there():
            pytest.skip(f"it is of CPUs with {called}: {marker.args[0]}")
    marker = item.get_closest_marker("of_3_2")
    if marker is None or not os.environ.get("FQFUSE_ONEDNN"):
        return
    version = load().version
    if version.triple[:2] != (3, 2):
        pytest.skip(f"it is of oneDNN 3.2, and this is {version}: {marker.args[0]}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the sample that --quick asks for, or all but that with --rest, and a third of it with --third."""
    quick, rest, third = (config.getoption(name) for name in ("quick", "rest", "third"))
    if quick and rest:
        raise pytest.UsageError("--quick and --rest leave nothing: name one of them")
    kept = set(_sample(items)) if quick or rest else set(items)
    if rest:
        counting = _modules_that_count_examples()
        kept = {
            item
            for item in items
            if item not in kept or item.get_closest_marker("slow") or _draws(item, counting)
        }
    if third:
        kept = set([item for item in items if item in kept][third - 1 :: 3])
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
    if quick:
        _count_lines_of_first_cases(items)


def _count_lines_of_first_cases(items: list[pytest.Item]) -> None:
    """With --cov count the lines that each test runs in its first case: counting makes tests of Python code
    twice as slow, and the lines that these reach are no more than those that all do.
    """
    tests: set[str] = set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in tests:
            item.add_marker("no_cover")
        tests.add(name)


def _sample(items: list[pytest.Item]) -> list[pytest.Item]:
    """A few cases of each test with many, spread from the first to the last. Slow tests and golden
    files are left whole: what runs them wants them.
    """
    whole = ("slow", "golden", "each_case")
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not any(item.get_closest_marker(name) for name in whole):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = {item for many in cases.values() for item in many} - {
        many[place * (len(many) - 1) // (QUICK_CASES - 1)]
        for many in cases.values()
        for place in range(QUICK_CASES)
    }
    return [item for item in items if item not in left_out]


def _draws(item: pytest.Item, counting: set[str]) -> bool:
    """Whether --quick lets it draw fewer examples; items without a module are taken to."""
    if not isinstance(item, pytest.Function):
        return True
    return hasattr(item.function, "is_hypothesis_test") or item.module.__name__ in counting


def _modules_that_count_examples() -> set[str]:
    """Modules of the tests that ask the profile how many examples there are, or use something of a module
    that does.
    """
    ours = {
        name: module
        for name, module in sys.modules.items()
        if str(getattr(module, "__file__", None)).startswith(str(Path(__file__).parent))
    }
    counting = {
        name
        for name, module in ours.items()
        if "max_examples" in Path(str(module.__file__)).read_text(encoding="utf-8")
    }
    while more := {
        name
        for name, module in ours.items()
        if name not in counting and _origins(module) & counting
    }:
        counting |= more
    return counting


def _origins(module: ModuleType) -> set[str]:
    """The modules that what a module names comes from."""
    named = list(vars(module).values()) if isinstance(module, ModuleType) else []
    return {
        value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", None))
        for value in named
    }


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One run of a test marked `golden(folder)` for each case in the folder; a folder without cases
    is an error, not a silent skip.
    """
    marker = metafunc.definition.get_closest_marker("golden")
    if marker is None:
        return
    (folder,) = marker.args
    cases = sorted((GOLDEN / folder).glob("*.txt"))
    if not cases:
        hint = "add <case>.txt with the input, then run `pytest --update-golden`"
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: no golden cases in {GOLDEN / folder}: {hint}"
        )
    update = metafunc.config.getoption("update_golden")
    metafunc.parametrize(
        "golden", [GoldenCase(path, update) for path in cases], ids=[path.stem for path in cases]
    )
