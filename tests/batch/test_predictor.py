"""The predictor gives what a session gives, in whichever form the rows come."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto
from support.onnx_cases import model, node

import fqfuse

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def predictor(plan: fqfuse.Plan) -> fqfuse.Predictor:
    return fqfuse.Predictor(plan, batch=50, backend="numpy", threads=1)


def test_arrays_to_arrays_also_behind_a_pickle(predictor, images, logits) -> None:
    for one in (predictor, pickle.loads(pickle.dumps(predictor))):  # noqa: S301  (our own)
        found = one({"image": images, "label": np.arange(360)})
        assert list(found) == ["logits"]
        assert np.array_equal(found["logits"], logits)
    assert predictor({"image": images[:0]})["logits"].shape == (0, 10)


def test_what_does_not_fit_is_refused(predictor, plan, images) -> None:
    with pytest.raises(fqfuse.InvalidInput, match="there is no column image"):
        predictor({"pixels": images})
    with pytest.raises(fqfuse.InvalidInput, match="expected float32"):
        predictor({"image": images.astype(np.float64)})
    with pytest.raises(fqfuse.InvalidInput, match="columns are given for what is no input: x"):
        fqfuse.Predictor(plan, columns={"x": "y"})
    with pytest.raises(fqfuse.InvalidInput, match="a batch of 0 rows"):
        fqfuse.Predictor(plan, batch=0)
    with pytest.raises(fqfuse.InvalidInput, match="a batch of 'a' rows"):
        fqfuse.Predictor(plan, batch="a")
    assert np.array_equal(
        fqfuse.Predictor(plan, batch=np.int64(7))({"image": images[:9]})["logits"].shape, (9, 10)
    )


def test_arrow_to_arrow_keeps_the_other_columns(plan, images, logits) -> None:
    pa = pytest.importorskip("pyarrow")
    predictor = fqfuse.Predictor(plan, backend="numpy", threads=1, columns={"image": "pixels"})
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(images)
    table = pa.table({"name": [f"{n}" for n in range(360)], "pixels": tensor})
    with pytest.raises(fqfuse.InvalidInput, match="a list holds no rows"):
        predictor([1, 2])
    found = predictor(table)
    assert found.column_names == ["name", "pixels", "logits"]
    answers = found.column("logits").combine_chunks()
    assert np.array_equal(answers.to_numpy_ndarray(), logits)
    batches = table.to_batches(max_chunksize=100)
    parts = list(predictor(iter(batches)))
    assert [type(part) for part in parts] == [pa.RecordBatch] * 4
    assert pa.Table.from_batches(parts).equals(found)
    assert predictor(batches[0].slice(0, 0)).num_rows == 0
    rows = [*images[:2].tolist(), None]
    lists = pa.array(rows, pa.list_(pa.list_(pa.list_(pa.float32()))))
    with pytest.raises(fqfuse.InvalidInput, match="the column pixels is null") as caught:
        predictor(pa.table({"pixels": lists}))
    assert caught.value.where == "row 2 of the batch"


def test_a_column_that_is_called_as_an_output_is_not_lost(plan, images) -> None:
    pa = pytest.importorskip("pyarrow")
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(images[:3])
    table = pa.table({"image": tensor, "logits": [1, 2, 3]})
    predictor = fqfuse.Predictor(plan, backend="numpy", threads=1)
    for rows in (table, table.to_batches()[0], table.slice(0, 0)):
        with pytest.raises(fqfuse.InvalidInput, match="the rows have a column logits"):
            predictor(rows)


def test_numbers_of_bf16_are_those_of_a_session_and_f32_in_arrow() -> None:
    pa = pytest.importorskip("pyarrow")
    proto = model(
        [node("Neg", ["x"], ["y"])], inputs={"x": ["N"]}, types={"x": TensorProto.BFLOAT16}
    )
    predictor = fqfuse.Predictor(proto, batch=2)
    x = np.float32([1, 2.5, -3])
    for fed in (x, x.astype(ml_dtypes.bfloat16)):
        found = predictor({"x": fed})["y"]
        assert found.dtype == ml_dtypes.bfloat16
        assert np.array_equal(found.astype(np.float32), -x)
    assert predictor({"x": x[:0]})["y"].dtype == ml_dtypes.bfloat16
    table = predictor(pa.table({"x": x}))
    assert table.column("y").type == pa.float32()
    assert np.array_equal(table.column("y").to_numpy(), -x)
    with pytest.raises(fqfuse.InvalidInput, match=r"x holds 1\.1.*, which is no bfloat16"):
        predictor(pa.table({"x": np.float32([1, 1.1])}))


def test_without_pyarrow_the_error_names_the_extra(monkeypatch, predictor) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(fqfuse.BackendUnavailable, match=r'pip install "fqfuse\[batch\]"'):
        predictor([1])


def test_the_python_of_the_page_runs() -> None:
    text = (ROOT / "docs" / "run.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "(100, 10)\n"
