"""Plans beyond 2 GiB: their constants lie in a second file, which changes in one step with the plan."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.plan_text import parse_plan

from fqfuse import InferenceSession, files
from fqfuse.errors import InvalidInput, PlanError
from fqfuse.plan import beside
from fqfuse.plan.file import files_of, plan_bytes, read_plan, save_plan
from fqfuse.plan.seal import seal
from fqfuse.plan.types import Plan

LIMIT = 1 << 12
"""In the place of 2 GiB."""


def plan_of(number: float) -> Plan:
    return parse_plan(
        f"""
plan large target=onednn-v3
  in %x : f32[1,64]
  const @b : f32[1] = fill(0.5)
  const @v : f32[128,64] = fill(0.25)
  const @w : f32[64,128] = fill({number})
  #0 %h : f32[1,128] = matmul<MatMul>(src=%x, weights=@w) ; first
  #1 %g : f32[1,64] = matmul<MatMul>(src=%h, weights=@v) ; second
  #2 %y : f32[1,64] = binary<Add>(src_0=%g, src_1=@b){{algorithm="add"}} ; sum
  out %y
"""
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "plan.onnx"
    save_plan(plan_of(0.5), target, LIMIT)
    return target


def data_of(path: Path) -> list[Path]:
    return sorted(other for other in path.parent.iterdir() if other != path)


def test_large_constants_lie_beside_the_plan(path: Path) -> None:
    (data,) = data_of(path)
    assert data.name.startswith("plan.onnx.")
    assert path.stat().st_size < LIMIT < data.stat().st_size
    assert read_plan(path) == plan_of(0.5)
    feeds = {"x": np.linspace(-1, 1, 64, dtype=np.float32)[None] + np.float32(0.25)}
    wanted = InferenceSession(plan_of(0.5), "numpy").run(None, feeds)
    for backend in ("numpy", "onednn"):
        found = InferenceSession(path, backend).run(None, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_without_large_constants_there_is_no_second_file(tmp_path: Path) -> None:
    small = parse_plan(
        """
plan small target=onednn-v3
  in %x : f32[1,4]
  const @b : f32[1] = fill(0.5)
  #0 %y : f32[1,4] = binary<Add>(src_0=%x, src_1=@b){algorithm="add"} ; sum
  out %y
"""
    )
    save_plan(small, tmp_path / "plan.onnx", limit=0)
    assert not data_of(tmp_path / "plan.onnx")
    assert read_plan(tmp_path / "plan.onnx") == small


def test_what_was_saved_is_told(path: Path, tmp_path: Path) -> None:
    assert files_of(path) == (path, *data_of(path))
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "link.onnx"
    link.symlink_to(path)
    save_plan(plan_of(1.0), link, LIMIT)
    # over a link, too, what the former plan named goes
    (saved,) = (other for other in data_of(path) if other.is_file())
    assert files_of(link) == (link, saved)
    save_plan(plan_of(2.0), link, LIMIT)
    assert len(data_of(path)) == 2  # the folder, and the data
    assert read_plan(path) == read_plan(link) == plan_of(2.0)
    save_plan(plan_of(1.0), path)
    assert files_of(path) == (path,)


def test_other_tools_find_the_data(path: Path) -> None:
    onnx.checker.check_model(path)
    (w,) = (t for t in onnx.load(path).graph.initializer if t.name == "w")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(w), np.full((64, 128), 0.5, "f"))


def test_constants_are_mapped(path: Path) -> None:
    constants = read_plan(path).constants
    assert not constants["w"].flags.writeable
    assert constants["w"].ctypes.data % beside.ALIGNED == 0
    assert isinstance(constants["w"].base, np.ndarray)


def test_small_constants_stay_in_the_plan(path: Path) -> None:
    model = onnx.ModelProto.FromString(path.read_bytes())
    assert {tensor.name: bool(tensor.external_data) for tensor in model.graph.initializer} == {
        "b": False,
        "v": True,
        "w": True,
    }


def test_data_of_a_plan_of_another_name_stays(path: Path) -> None:
    """A copy names the data of what it was copied from."""
    other = path.with_name("copy.onnx")
    other.write_bytes(path.read_bytes())
    path.with_name(f"copy.onnx.{'0' * 64}.data").touch()
    save_plan(plan_of(1.0), other, LIMIT)
    assert read_plan(path) == plan_of(0.5)


def test_the_same_plan_gives_the_same_bytes(path: Path) -> None:
    before = {other: other.read_bytes() for other in (path, *data_of(path))}
    save_plan(read_plan(path), path, LIMIT)  # over the file that it is mapped from
    assert {other: other.read_bytes() for other in (path, *data_of(path))} == before


def test_what_a_replaced_plan_named_goes_last(path: Path) -> None:
    (old,) = data_of(path)
    held = read_plan(path)
    left = path.parent / f"plan.onnx.{'0' * 64}.data"  # no plan names it
    others = [left.with_name(left.name[1:]), left.with_name(f"{left.name}.old")]
    for other in (left, *others):
        other.write_bytes(b"else")
    save_plan(plan_of(2), path, LIMIT)
    assert read_plan(path) == plan_of(2)
    assert old not in data_of(path)
    assert held == plan_of(0.5)  # what is mapped outlives its name
    save_plan(plan_of(3), path)  # without data beside it
    assert data_of(path) == sorted(others)
    assert read_plan(path) == plan_of(3)


@pytest.mark.parametrize("failing", ["the data", "the plan"])
def test_a_crash_leaves_the_old_plan_with_its_data(path: Path, monkeypatch, failing: str) -> None:
    real, calls = files.os.write, []

    def full(handle: int, data: memoryview) -> int:
        calls.append(len(data))
        if failing == "the data" or b"fqfuse.schema" in bytes(data):
            raise OSError(28, os.strerror(28))
        return real(handle, data)

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(InvalidInput, match="No space left"):
        save_plan(plan_of(2), path, LIMIT)
    monkeypatch.undo()
    assert calls
    assert read_plan(path) == plan_of(0.5)


def test_data_that_is_changed_missing_or_another_is_refused(path: Path) -> None:
    (data,) = data_of(path)
    whole = data.read_bytes()
    for wrong in (whole[:-1], whole + b"\0", whole[:9] + b"!" + whole[10:], b""):
        data.write_bytes(wrong)
        with pytest.raises(PlanError, match="the data beside the plan is") as caught:
            read_plan(path)
        assert str(data) in caught.value.where
    data.unlink()
    with pytest.raises(PlanError, match="there is no such file"):
        read_plan(path)
    (path.parent / "elsewhere").write_bytes(whole)
    data.symlink_to("elsewhere")
    with pytest.raises(PlanError, match="the data beside the plan cannot be read"):
        read_plan(path)
    data.unlink()
    os.mkfifo(data)
    with pytest.raises(PlanError, match="no regular file"):
        read_plan(path)


def test_bytes_of_such_a_plan_are_not_enough(path: Path) -> None:
    with pytest.raises(PlanError, match="lie in a second file"):
        read_plan(path.read_bytes())


def rewritten(path: Path, change) -> None:
    """The plan with another tensor or name, and a seal that fits: what an attacker writes."""
    model = onnx.ModelProto.FromString(path.read_bytes())
    kept = [entry for entry in model.metadata_props if entry.key != "fqfuse.digest"]
    change({tensor.name: tensor for tensor in model.graph.initializer} | {e.key: e for e in kept})
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    body = model.SerializeToString(deterministic=True)
    path.write_bytes(body + seal(body))


@pytest.mark.parametrize("key", ["offset", "length"])
@pytest.mark.parametrize("value", ["", "-4096", "1e3", "9" * 30, "1", "8388608", "٣"])
def test_places_that_no_plan_has_are_refused(path: Path, key: str, value: str) -> None:
    def change(parts) -> None:
        (found,) = (entry for entry in parts["w"].external_data if entry.key == key)
        found.value = value

    rewritten(path, change)
    with pytest.raises(PlanError, match=r"say where it lies|no plan has one|has 1 bytes"):
        read_plan(path)


@pytest.mark.parametrize("name", ["../plan.data", "/etc/hostname", "", f"../x.{'0' * 64}.data"])
def test_names_that_fqfuse_does_not_give_are_refused(path: Path, name: str) -> None:
    def change(parts) -> None:
        parts["fqfuse.data"].value = name

    rewritten(path, change)
    with pytest.raises(PlanError, match="no name that fqfuse gives"):
        read_plan(path)


def test_data_in_two_places_is_refused(path: Path) -> None:
    def change(parts) -> None:
        parts["w"].raw_data = bytes(64 * 128 * 4)

    rewritten(path, change)
    with pytest.raises(PlanError, match="in a place that plans do not use"):
        read_plan(path)


def test_bytes_of_a_plan_beyond_the_limit_are_refused() -> None:
    huge = np.broadcast_to(np.float32(0), (1 << 15, 1 << 15))  # 4 GiB, of which 4 bytes exist
    plan = plan_of(1)
    with pytest.raises(PlanError, match="one ONNX file holds 2 GiB"):
        plan_bytes(Plan(**{**vars(plan), "constants": {**plan.constants, "huge": huge}}))


@pytest.mark.parametrize("limit", [-1, 0.5, "1"])
def test_a_limit_that_is_no_size_is_refused(path: Path, limit: object) -> None:
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match=f"a limit of {limit!r} bytes"):
        save_plan(read_plan(path), path, limit=limit)
    assert path.read_bytes() == before
