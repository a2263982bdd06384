"""The committed digits model in its three forms, and the held-out test digits. Needs NumPy only.

How the files were made, what they contain and how accurate they are is in `models/README.md`.
"""

from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

DigitsForm = Literal["f32", "fakequantize", "qdq"]

FORMS: Final[tuple[DigitsForm, ...]] = ("f32", "fakequantize", "qdq")
DATA_FOLDER: Final = Path(__file__).resolve().parent / "data"
TEST_SET_PATH: Final = DATA_FOLDER / "digits_test.npz"


def digits_model_path(form: DigitsForm) -> Path:
    """Path of the digits model as an ONNX file.

    `form` is `"f32"` (no quantizers, BatchNormalization kept), `"fakequantize"` (`FakeQuantize` of
    domain `org.openvinotoolkit`) or `"qdq"` (QuantizeLinear/DequantizeLinear). All three take
    `image`, f32 `[N, 1, 8, 8]` with pixels in 0..1, and give `logits`, f32 `[N, 10]`.

    Raises ValueError if there is no such form, FileNotFoundError if the installation lacks the
    file.
    """
    if form not in FORMS:
        raise ValueError(f"the digits model has no form {form!r}; choose one of {', '.join(FORMS)}")
    return _existing(DATA_FOLDER / f"digits_{form}.onnx")


def digits_test_set() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The 360 digits that the training never saw: images f32 `[360, 1, 8, 8]` with pixels in 0..1
    (steps of 1/16), labels int64 `[360]`.

    Raises FileNotFoundError if the installation lacks the file.
    """
    with np.load(_existing(TEST_SET_PATH), allow_pickle=False) as archive:
        images = np.asarray(archive["images"], dtype=np.float32)
        labels = np.asarray(archive["labels"], dtype=np.int64)
    return images, labels


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: the installation of fqfuse is incomplete, reinstall it"
        )
    return path
