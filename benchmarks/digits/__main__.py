"""Builds the committed files of the digits model: `make models`, or
`python -m fqfuse.benchmarks.digits` in a checkout.

Needs torch==2.13.0, scikit-learn and onnx. The same machine and library versions give the same
bytes every time; another CPU may round a sum of the training differently, which gives another
network of like accuracy.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx

from fqfuse.models.digits import DATA_FOLDER, TEST_SET_PATH

from .data import SPLIT_SEED, TEST_DIGITS, load_scaled_digits, split
from .onnx_models import f32_model, fakequantize_model, qdq_model
from .training import BATCH_NORM_EPSILON, Recipe, train


def build(folder: Path, recipe: Recipe, validate: bool) -> None:
    """Train and write `digits_{f32,fakequantize,qdq}.onnx` and `digits_test.npz` to `folder`, which
    must exist.

    With `validate`, 360 digits of the training part take the role of the test digits: recipes are
    chosen so, never on the test digits.
    """
    images, labels = load_scaled_digits()
    train_rows, test_rows = split(labels, TEST_DIGITS, SPLIT_SEED)
    if validate:
        inner_train, inner_test = split(labels[train_rows], TEST_DIGITS, SPLIT_SEED)
        train_rows, test_rows = train_rows[inner_train], train_rows[inner_test]
    parameters, ranges = train(images[train_rows], labels[train_rows], recipe)
    models = {
        "f32": f32_model(parameters, BATCH_NORM_EPSILON),
        "fakequantize": fakequantize_model(parameters, BATCH_NORM_EPSILON, ranges),
        "qdq": qdq_model(parameters, BATCH_NORM_EPSILON, ranges),
    }
    for form, model in models.items():
        onnx.save(model, folder / f"digits_{form}.onnx")
    np.savez_compressed(
        folder / TEST_SET_PATH.name,
        images=images[test_rows],
        labels=labels[test_rows],
        rows=test_rows,
    )


def main() -> None:
    """Command line of the builder."""
    parser = argparse.ArgumentParser(prog="build_digits", description=build.__doc__)
    parser.add_argument(
        "--folder",
        type=Path,
        default=DATA_FOLDER,
        help="where the files go (default: the committed ones)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--validate",
        action="store_true",
        help="hold out 360 of the training digits instead of the test digits",
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    build(options.folder, Recipe(seed=options.seed), options.validate)


if __name__ == "__main__":
    main()
