"""All cases, and the few results that no other runtime gives."""

from __future__ import annotations

import numpy as np

from . import cases_compute, cases_movement, cases_pointwise, cases_recurrent, cases_windows
from .harness import Case

CASES: tuple[Case, ...] = (
    cases_windows.CASES
    + cases_pointwise.CASES
    + cases_movement.CASES
    + cases_compute.CASES
    + cases_recurrent.CASES
)


def by_hand(case: Case) -> list[np.ndarray]:
    """The result of a case without another oracle, written another way than the row writes it."""
    x = case.inputs[0]
    if case.op == "ConvInteger":
        weights = case.inputs[1].astype(np.int64) - case.inputs[3].reshape(-1, 1, 1, 1)
        windows = np.lib.stride_tricks.sliding_window_view(
            x.astype(np.int64) - int(case.inputs[2]), (3, 3), axis=(2, 3)
        )
        return [np.einsum("nchwij,ocij->nohw", windows, weights).astype(np.int32)]
    if case.op == "MatMulInteger":
        a, b = (
            x.astype(object) - case.inputs[2].astype(object)[:, None],
            case.inputs[1].astype(object) - int(case.inputs[3]),
        )
        return [(a @ b).astype(np.int32)]
    if case.op == "LayerNormalization":
        mean, spread = x.mean(axis=-1, keepdims=True), x.std(axis=-1, keepdims=True)
        inverse = 1 / np.sqrt(spread**2 + 1e-5)
        return [
            (x - mean) * inverse * case.inputs[1],
            mean.astype(np.float32),
            inverse.astype(np.float32),
        ]
    if case.op == "GlobalLpPool":
        flat = x.reshape(*x.shape[:2], -1)
        norms = np.linalg.norm(flat, case.attrs["p"], axis=2)
        return [norms.reshape(*x.shape[:2], *[1] * (x.ndim - 2))]
    if case.op == "LRN":
        total = np.stack(
            [
                (x[:, max(0, c - 1) : c + 3].astype(np.float64) ** 2).sum(axis=1)
                for c in range(x.shape[1])
            ],
            axis=1,
        )
        return [(x / (1.5 + 0.3 / 4 * total) ** 0.6).astype(np.float32)]
    if case.op == "SpaceToDepth":
        b = case.attrs["blocksize"]
        parts = [
            x[:, c : c + 1, i::b, j::b]
            for c in range(x.shape[1])
            for i in range(b)
            for j in range(b)
        ]
        return [np.concatenate(parts, axis=1)]
    if case.op == "Reshape":
        return [np.reshape(x, (4, 5, 4, 3))]
    assert case.op == "Clip"
    return [np.where(x < -1.5, np.float32(-1.5), x)]
