"""The pipeline as a list: what every pass declares, and that running it leaves nothing behind."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from laws.build import Net
from laws.corpus import CORPUS

import fqfuse.passes
from fqfuse.ir.graph import Graph
from fqfuse.ir.verify import SPLIT, verify
from fqfuse.passes import PIPELINE, Pass, optimize, passes_of, run_pipeline
from fqfuse.passes.align_zero_points import ALIGN_ZERO_POINTS
from fqfuse.passes.quantize_at_run_time import QUANTIZE_AT_RUN_TIME

PASSES = {step.name: step for step in passes_of(PIPELINE)}
each = pytest.mark.parametrize("step", PASSES.values(), ids=PASSES)


@each
def test_one_name_for_file_function_value_and_golden_folder(step: Pass) -> None:
    module = importlib.import_module(f"fqfuse.passes.{step.name}")
    assert getattr(module, step.name) is step.rewrite
    assert getattr(module, step.name.upper()) is step
    golden = Path(__file__).parents[1] / "golden" / step.name
    assert len(list(golden.glob("*.txt"))) >= 3
    assert (Path(__file__).parent / f"test_{step.name}.py").exists()


@each
def test_a_pass_says_what_it_promises(step: Pass) -> None:
    # these do nothing unless they are asked to
    asked = step in (QUANTIZE_AT_RUN_TIME, ALIGN_ZERO_POINTS)
    assert step.contract.real == ("approximation" if asked else "identity")
    assert (step.contract.ulps > 0) == (step.contract.float == "ulp")


@each
def test_the_docstring_argues(step: Pass) -> None:
    text = step.rewrite.__doc__ or ""
    for part in ("Before -> after", "Legal because", "Refuses when"):
        assert part in text


def test_every_pass_of_the_folder_is_in_the_pipeline() -> None:
    folder = Path(fqfuse.passes.__file__).parent
    helpers = {"__init__", "base", "cuts", "group", "reshape_runs", "reshaping", "retyping"}
    assert {path.stem for path in folder.glob("*.py")} - helpers == set(PASSES)


def test_every_line_of_the_pipeline_has_its_because() -> None:
    source = Path(fqfuse.passes.__file__).read_text(encoding="utf-8")
    block = source.partition("PIPELINE: tuple[Pass, ...] = (")[2].partition("\n)")[0]
    code = [line.strip() for line in block.splitlines() if line.strip()]
    starts = [place for place, line in enumerate(code) if not line.startswith("#")]
    assert len(starts) == len(PIPELINE)
    for before, place in zip([-1, *starts], starts, strict=False):
        assert place > before + 1, code[place]
        assert code[before + 1].startswith("# because: ")


def test_observers_see_the_graph_behind_each_pass() -> None:
    n = Net()
    graph = n.done(n.op("Relu", n.fq(n.input(("N", 4)), 0.0, 1.0)))
    seen: list[str] = []
    versions: list[int] = []

    def observe(step: Pass, found: Graph) -> None:
        assert found is graph
        seen.append(step.name)
        versions.append(found.version)

    assert run_pipeline(graph, PIPELINE, [observe]) is graph
    assert seen == [step.name for step in PIPELINE]
    assert versions == sorted(versions)


@pytest.mark.parametrize("name", CORPUS)
def test_nothing_unread_is_left(name: str) -> None:
    graph = optimize(CORPUS[name]())
    assert verify(graph, SPLIT) == []
    assert all(
        any(graph.is_read(value) for value in node.outputs if value) for node in graph.nodes()
    )
    assert all(graph.is_read(value) for value in graph.constants)


@pytest.mark.parametrize("name", CORPUS)
def test_the_whole_pipeline_twice_is_once(name: str) -> None:
    once = optimize(CORPUS[name]())
    again = optimize(once.copy())
    assert again == once
