"""A second start takes the plan that the first one made, and only that of the very same model."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import fqfuse
from fqfuse import plan_cache
from fqfuse.cli.load import plan_of
from fqfuse.errors import InvalidInput
from fqfuse.plan.file import plan_bytes

ROWS = np.random.default_rng(0).uniform(-1, 1, (3, 4)).astype(np.float32)
NODES = (
    "QuantizeLinear x s z -> q",
    "DequantizeLinear q s z -> a",
    "DequantizeLinear w s z -> b",
    "MatMul a b -> y",
)


def network(value: int = 3) -> onnx.ModelProto:
    """A product of codes with weights of this value."""
    numbers = {"s": np.float32(0.1), "z": np.int8(0), "w": np.full((4, 5), value, np.int8)}
    nodes = [helper.make_node(words[0], words[1:-2], words[-1:]) for words in map(str.split, NODES)]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", size])
        for name, size in (("x", 4), ("y", 5))
    ]
    weights = [numpy_helper.from_array(np.asarray(data), name) for name, data in numbers.items()]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def path(tmp_path_factory) -> Path:
    """A file of the network."""
    found = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(network(), found)
    return found


@pytest.fixture
def compiled(monkeypatch) -> list[object]:
    """One entry for each model that was compiled from here on."""
    found: list[object] = []
    whole = fqfuse.compile

    def counted(*args, **settings):
        found.append(settings)
        return whole(*args, **settings)

    monkeypatch.setattr("fqfuse.compiler.compile", counted)
    return found


def opened(model, folder, **settings) -> bytes:
    """The bytes of the plan of a session, after a run that has to give the model's results."""
    session = fqfuse.InferenceSession(model, "numpy", cache=folder, **settings)
    expected = fqfuse.InferenceSession(fqfuse.load_plan(plan_bytes(session.plan)), "numpy")
    feeds = {"x": ROWS}
    assert session.run(None, feeds)[0].tobytes() == expected.run(None, feeds)[0].tobytes()
    return plan_bytes(session.plan)


def test_a_second_start_compiles_nothing(path, tmp_path, compiled, monkeypatch) -> None:
    made = plan_bytes(fqfuse.compile(path))
    for model in (
        path,
        str(path),
        path.read_bytes(),
        bytearray(path.read_bytes()),
        onnx.load(path),
    ):
        assert opened(model, tmp_path / "plans") == made
    assert len(compiled) == 1
    monkeypatch.setenv("FQFUSE_CACHE", str(tmp_path / "plans"))
    assert opened(path, None) == made
    assert plan_bytes(plan_of(path, None)) == made  # of the command line
    assert len(compiled) == 1
    told = fqfuse.InferenceSession(path, "numpy").get_modelmeta().graph_name
    assert told == onnx.load(path).graph.name
    monkeypatch.delenv("FQFUSE_CACHE")
    opened(path, None)
    assert len(compiled) == 2, "off unless asked for"


def test_whatever_decides_the_plan_decides_the_entry(path, tmp_path, compiled) -> None:
    fixed = fqfuse.SessionOptions()
    fixed.add_free_dimension_override_by_name("N", 3)
    ways = [
        lambda folder: opened(path, folder),
        lambda folder: opened(network(4), folder),
        lambda folder: opened(path, folder, sess_options=fixed),
        lambda folder: opened(path, folder, budgets=fqfuse.Budgets(nodes=50)),
        lambda folder: plan_bytes(plan_of(path, "unified", cache=folder)),
        lambda folder: plan_bytes(plan_of(path, None, "matmul", cache=folder)),
        lambda folder: plan_bytes(plan_of(path, None, None, ["small-shift"], cache=folder)),
    ]
    plain = [way(None) for way in ways]
    del compiled[:]
    assert [way(tmp_path) for way in (*ways, *reversed(ways))] == [*plain, *reversed(plain)]
    assert len(compiled) == len(ways)


def test_external_data_is_part_of_the_model(tmp_path, compiled) -> None:
    model, data = tmp_path / "model.onnx", tmp_path / "weights"
    onnx.save(network(), model, save_as_external_data=True, location="weights", size_threshold=8)
    first = opened(model, tmp_path / "plans")
    assert opened(model, tmp_path / "plans") == first
    assert len(compiled) == 1
    data.write_bytes(bytes(len(data.read_bytes())))
    assert opened(model, tmp_path / "plans") != first
    assert len(compiled) == 2
    data.unlink()
    with pytest.raises(fqfuse.InvalidModel, match="external data"):
        opened(model, tmp_path / "plans")


def test_a_damaged_entry_is_made_again(path, tmp_path) -> None:
    made = opened(path, tmp_path)
    (entry,) = tmp_path.iterdir()
    whole = entry.read_bytes()
    other = plan_bytes(fqfuse.compile(network(4)))
    for broken in (b"", whole[:-1], whole[: len(whole) // 2], bytes(len(whole)), other[:-9]):
        entry.write_bytes(broken)
        assert opened(path, tmp_path) == made
        assert entry.read_bytes() == whole
    entry.unlink()
    entry.mkdir()
    with pytest.warns(UserWarning, match="not kept in the cache"):
        assert opened(path, tmp_path) == made


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no permissions of this kind")
def test_a_folder_that_others_may_write_to_is_refused(path, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "plans" / "inner"
    opened(path, folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    for mode in (0o777, 0o770, 0o722, 0o1777):
        folder.chmod(mode)
        with pytest.raises(InvalidInput, match="others may write"):
            opened(path, folder)
    folder.chmod(0o755)
    opened(path, folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    opened(path, link)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(InvalidInput, match="others may write"):
        opened(path, folder)
    for place in (path, "", "a\0b", 3):
        with pytest.raises(InvalidInput):
            opened(path, place)


def test_what_was_used_least_recently_goes(path, tmp_path, monkeypatch) -> None:
    size = len(plan_bytes(fqfuse.compile(path)))
    monkeypatch.setattr(plan_cache, "MOST_BYTES", int(2.5 * size))
    (tmp_path / "notes.plan.onnx").write_bytes(bytes(4 * size))  # nobody's entry stays
    names: dict[int, str] = {}
    for turn, nodes in enumerate((50, 51, 50, 52)):
        before = {file.name for file in tmp_path.iterdir()}
        opened(path, tmp_path, budgets=fqfuse.Budgets(nodes=nodes))
        for name in {file.name for file in tmp_path.iterdir()} - before:
            names[nodes] = name
        # the clock of a file system may be coarse
        os.utime(tmp_path / names[nodes], (1e9 + turn, 1e9 + turn))
    kept = {file.name for file in tmp_path.iterdir()}
    assert kept == {"notes.plan.onnx", names[50], names[52]}
    monkeypatch.setattr(plan_cache, "MOST_BYTES", size // 2)
    opened(path, tmp_path, budgets=fqfuse.Budgets(nodes=53))
    assert {file.name for file in tmp_path.iterdir()} == {"notes.plan.onnx"}


def test_many_at_once(path, tmp_path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: opened(path, tmp_path), range(8)))
    assert len(set(found)) == 1
    (entry,) = tmp_path.iterdir()  # and nothing that was begun
    assert entry.read_bytes() == found[0]


@pytest.mark.slow
def test_processes_at_once(path, tmp_path) -> None:
    script = (
        "import sys, fqfuse; s = fqfuse.InferenceSession(sys.argv[1], 'numpy', cache=sys.argv[2])"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, path, tmp_path]) for _ in range(4)]
    assert [process.wait(120) for process in running] == [0] * 4
    (entry,) = Path(tmp_path).iterdir()
    assert entry.read_bytes() == plan_bytes(fqfuse.compile(path))
