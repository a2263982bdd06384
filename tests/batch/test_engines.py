"""Ray, Spark and Dask themselves: `make test-batch` installs them."""

from __future__ import annotations

import faulthandler
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import fqfuse
from fqfuse.batch.run import Asked, run_batch

# What the engines and their dependencies warn of is theirs to mend.
PATIENCE = 900  # seconds for a test: a hundred times what it takes where nothing else runs
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes with one processor each; yields it and the node that may be killed."""
    ray = pytest.importorskip("ray", reason="make test-batch has Ray")
    from ray.cluster_utils import Cluster

    cluster, second = started(Cluster)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


def started(kind):
    """Ray gives its processes 30 seconds to start, whatever else the machine does: a few trials."""
    store = {"object_store_memory": 100 << 20}
    for trial in range(5):
        cluster = kind()
        try:
            cluster.add_node(num_cpus=1, include_dashboard=False, **store)
            return cluster, cluster.add_node(num_cpus=1, **store)
        except Exception:
            cluster.shutdown()
            if trial == 4:
                raise
    raise AssertionError


@pytest.fixture(autouse=True)
def watched():
    """A cluster that does not answer ends the tests with what each thread waits for."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def data(tmp_path: Path, images: np.ndarray) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(9):
        np.savez(folder / f"{number}.npz", image=images)
    np.savez(folder / "bad.npz", image=images[:3, :, :5])
    return folder


@pytest.mark.usefixtures("nodes")
def test_ray_data_maps_batches_in_actors(tmp_path: Path, plan, images, logits) -> None:
    import ray

    fqfuse.save_plan(plan, tmp_path / "plan.onnx")
    rows = ray.data.from_numpy(images).rename_columns({"data": "image"})
    found = rows.map_batches(
        fqfuse.Predictor,
        fn_constructor_args=(str(tmp_path / "plan.onnx"),),
        fn_constructor_kwargs={"threads": 1, "backend": "numpy"},
        batch_size=64,
        compute=ray.data.ActorPoolStrategy(size=1),
    ).take_all()
    assert np.array_equal(np.stack([row["logits"] for row in found]), logits)
    predictor = fqfuse.Predictor(plan, threads=1, backend="numpy")  # and one that was pickled
    found = rows.map_batches(predictor, batch_size=64, batch_format="pyarrow").take_all()
    assert np.array_equal(np.stack([row["logits"] for row in found]), logits)


def test_a_node_killed_in_the_middle_loses_nothing(nodes, tmp_path, plan, data, contents) -> None:
    import ray

    cluster, second = nodes

    def run(output: Path, engine: str):
        asked = Asked(data, output, batch=1, workers=2, threads=1, backend="numpy", engine=engine)
        return run_batch(plan, asked, lambda *_: None)

    run(tmp_path / "local", "local")
    outcome = run(tmp_path / "ray", "ray")
    assert (outcome.written, outcome.bad, outcome.resumed) == (9 * 360, 3, 0)
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")

    output, killed, over = tmp_path / "killed", [], threading.Event()

    def kill() -> None:
        while len(list(output.glob("_batch/part-*.json"))) < 8:
            if over.wait(0.02):
                return
        killed.append(len(list(output.glob("_batch/part-*.json"))))
        cluster.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        outcome = run(output, "ray")
    finally:
        over.set()
        killer.join()
    assert killed[0] < outcome.parts
    assert sum(node["Alive"] for node in ray.nodes()) == 1
    assert (outcome.written, outcome.bad) == (9 * 360, 3)
    assert contents(output) == contents(tmp_path / "local")


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_spark_maps_in_arrow(monkeypatch, plan, images, logits) -> None:
    pytest.importorskip("pyspark", reason="make test-batch has Spark")
    pyarrow = pytest.importorskip("pyarrow")
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # else workers are the system's python3
    predictor = fqfuse.Predictor(plan, threads=1, backend="numpy")

    def mapped(batches):
        for batch in batches:
            answers = predictor(batch)
            lists = answers.column("logits").storage.cast(pyarrow.list_(pyarrow.float32()))
            yield answers.from_arrays([answers.column("id"), lists], names=["id", "logits"])

    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    try:
        rows = [(number, image.ravel().tolist()) for number, image in enumerate(images[:40])]
        frame = spark.createDataFrame(rows, "id long, image array<float>")
        found = frame.mapInArrow(mapped, "id long, logits array<float>").collect()
    finally:
        spark.stop()
    answers = np.array([row["logits"] for row in sorted(found)], np.float32)
    assert np.array_equal(answers, logits[:40])


def test_dask_maps_blocks(plan, images, logits) -> None:
    dask_array = pytest.importorskip("dask.array", reason="make test-batch has Dask")
    predictor = fqfuse.Predictor(plan, threads=1, backend="numpy")
    blocks = dask_array.from_array(images, chunks=(100, 1, 8, 8))
    found = dask_array.map_blocks(
        lambda block: predictor({"image": block})["logits"],
        blocks,
        dtype="float32",
        drop_axis=(2, 3),
        chunks=(blocks.chunks[0], (10,)),
        meta=np.zeros((0, 0), np.float32),
    )
    assert np.array_equal(found.compute(scheduler="processes", num_workers=1), logits)
