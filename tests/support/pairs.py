"""Plans with their data in a second file, and processes that write and read one.

    python -c "from support.pairs import main; main()" PATH write|read SECONDS

prints how often it wrote or read; a writer first an empty line when it has begun.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from support.plan_text import parse_plan

from fqfuse.plan.file import read_plan, save_plan
from fqfuse.plan.types import Plan

LIMIT = 1 << 12
"""In the place of 2 GiB."""


def plan_of(number: float) -> Plan:
    """A plan whose data holds a number."""
    return parse_plan(
        f"""
plan large target=onednn-v3
  in %x : f32[1,64]
  const @w : f32[64,128] = fill({number})
  #0 %y : f32[1,128] = matmul<MatMul>(src=%x, weights=@w) ; first
  out %y
"""
    )


def number_of(path: Path) -> float:
    """What the plan at a path holds throughout."""
    (number,) = set(read_plan(path).constants["w"].reshape(-1).tolist())
    return number


def main() -> None:
    path, role, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    plans = [plan_of(os.getpid() + number / 8) for number in range(3)]
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        if role == "write":
            save_plan(plans[count % 3], path, LIMIT)
            if not count:
                print(flush=True)
        else:
            number_of(path)
        count += 1
    print(count)
