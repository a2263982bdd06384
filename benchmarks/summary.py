"""What the rows of a measurement say together: ratios to the faster peer, geometric means, accuracy
gaps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fqfuse.measure.engines import PEERS
from fqfuse.measure.turns import Row

from .measure import REFERENCE

SUBJECT = "fqfuse-onednn"
NUMPY = "fqfuse-numpy"


@dataclass(frozen=True)
class FileSummary:
    """One file: all times in ms, ratios dimensionless, None where an engine did not answer.

    ``ratio`` is fqfuse on oneDNN over the faster peer; ``numpy_ratio`` fqfuse on NumPy over ONNX
    Runtime in f32; ``sqnr_gap_db`` the better peer's SQNR minus fqfuse's (positive: fqfuse is less
    accurate); ``limit_ms`` the time that the file's multiply-accumulates take at the machine's int8
    peak.
    """

    file: str
    onednn_ms: float | None
    numpy_ms: float | None
    peers_ms: Mapping[str, float | None]
    float_ms: float | None
    ratio: float | None
    numpy_ratio: float | None
    sqnr_gap_db: float | None
    limit_ms: float | None
    both_peers: bool


def summarize_file(rows: Sequence[Row], macs: int, peak: float | None) -> FileSummary:
    """Summarize the rows of one file; ``peak`` in operations a second, two to a
    multiply-accumulate.
    """
    good = {row.engine: row for row in rows if not row.reason}
    times = {name: row.median_ms for name, row in good.items()}
    peers = {name: times.get(name) for name in PEERS}
    fastest = min((ms for ms in peers.values() if ms is not None), default=None)
    accuracies = [db for name in PEERS if name in good and (db := good[name].sqnr_db) is not None]
    own = good[SUBJECT].sqnr_db if SUBJECT in good else None
    return FileSummary(
        file=rows[0].file,
        onednn_ms=times.get(SUBJECT),
        numpy_ms=times.get(NUMPY),
        peers_ms=peers,
        float_ms=times.get(REFERENCE),
        ratio=_ratio(times.get(SUBJECT), fastest),
        numpy_ratio=_ratio(times.get(NUMPY), times.get(REFERENCE)),
        sqnr_gap_db=max(accuracies) - own if accuracies and own is not None else None,
        limit_ms=2 * macs / peak * 1e3 if peak else None,
        both_peers=all(ms is not None for ms in peers.values()),
    )


def summarize(files: Sequence[FileSummary]) -> dict[str, Any]:
    """Return each file's summary and the figures over files.

    The geometric mean counts the files that both peers run, the worst ones those of any peer. A
    gap to a peer that gave the reference's bits is none: such a file is not quantized.
    """
    both = [f.ratio for f in files if f.both_peers and f.ratio is not None]
    gaps = [f.sqnr_gap_db for f in files if f.sqnr_gap_db is not None]
    return {
        "files": [asdict(f) for f in files],
        "files_both_peers": len(both),
        "geometric_mean_both_peers": _geometric_mean(both),
        "worst_ratio": max((f.ratio for f in files if f.ratio is not None), default=None),
        "worst_sqnr_gap_db": max(filter(math.isfinite, gaps), default=None),
    }


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return None if numerator is None or denominator is None else numerator / denominator


def _geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
