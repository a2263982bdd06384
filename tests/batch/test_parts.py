"""Parts cover each row once, in order, whatever the files are."""

from __future__ import annotations

import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fqfuse.batch.local import shares, taken
from fqfuse.batch.parts import DataFile, parts_of, rows_of_part
from fqfuse.batch.rows import Rows, filled, in_order

COUNTS = st.lists(st.integers(0, 900), max_size=8)


def files(counts: list[int]) -> list[DataFile]:
    return [DataFile(f"{i}.npy", count, 1, 2) for i, count in enumerate(counts)]


@given(COUNTS, st.integers(1, 5))
def test_each_row_is_in_one_part_and_in_order(counts: list[int], batch: int) -> None:
    parts = parts_of(files(counts), batch)
    rows = [
        (piece.file, row, piece.first + row)
        for part in parts
        for piece in part.pieces
        for row in range(piece.start, piece.stop)
    ]
    expected = [(f"{i}.npy", row) for i, count in enumerate(counts) for row in range(count)]
    assert rows == [(*place, number) for number, place in enumerate(expected)]
    assert [part.index for part in parts] == list(range(len(parts)))
    firsts = np.cumsum([0, *(part.rows for part in parts)])[:-1]
    assert [part.first for part in parts] == firsts.tolist()


@given(COUNTS, st.integers(1, 5))
def test_all_parts_but_the_last_are_whole_batches(counts: list[int], batch: int) -> None:
    size = rows_of_part(sum(counts), batch)
    assert size % batch == 0
    assert [part.rows for part in parts_of(files(counts), batch)][:-1] == [size] * (
        max(0, -(-sum(counts) // size) - 1)
    )


def test_a_large_job_has_no_more_than_a_thousand_parts() -> None:
    assert len(parts_of(files([10_000_019]), 7)) <= 1000
    assert rows_of_part(100, 32) == 64 * 32


def rows_from(start: int, count: int, file: str) -> Rows:
    numbers = np.arange(start, start + count)
    return Rows({"x": numbers * 2.0}, numbers, ((file, start - 5, count),))


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(1, 6))
def test_batches_are_full_and_know_where_their_rows_are(counts: list[int], size: int) -> None:
    starts = np.cumsum([0, *counts])[:-1]
    given_rows = [
        rows_from(int(start), count, f"f{i}")
        for i, (start, count) in enumerate(zip(starts, counts, strict=True))
    ]
    batches = list(filled(given_rows, size))
    assert all(len(batch) == size for batch in batches[:-1])
    numbers = [int(number) for batch in batches for number in batch.numbers]
    assert numbers == list(range(sum(counts)))
    for batch in batches:
        assert (batch.feeds["x"] == batch.numbers * 2.0).all()
        for index, number in enumerate(batch.numbers):
            owner = next(
                i for i in reversed(range(len(counts))) if starts[i] <= number and counts[i]
            )
            assert batch.place(index) == (f"f{owner}", number - (starts[owner] - 5))


def test_only_a_batch_that_lies_across_is_copied() -> None:
    given_rows = [rows_from(0, 10, "a"), rows_from(10, 11, "b")]
    batches = list(filled(given_rows, 4))
    held = [some.feeds["x"] for some in given_rows]
    shared = [any(np.shares_memory(batch.feeds["x"], one) for one in held) for batch in batches]
    assert shared == [True, True, False, True, True, True]


@given(st.integers(0, 40), st.integers(1, 6), st.randoms())
def test_each_part_is_given_out_once_and_neighbours_to_one_worker(
    count: int, workers: int, draw: random.Random
) -> None:
    parts = parts_of(files([64 * count]), 1)
    left = shares(parts, workers)
    assert [part for share in left for part in share] == parts
    assert len(left) == min(workers, count)
    given_out = []
    while any(left):
        part = taken(left, draw.randrange(len(left)))
        assert part is not None
        given_out.append(part.index)
    assert sorted(given_out) == list(range(count))
    assert not left or taken(left, 0) is None


def test_a_worker_that_has_done_its_share_takes_half_of_the_longest() -> None:
    left = shares(parts_of(files([64 * 12]), 1), 2)
    order = [taken(left, 0).index for _ in range(10)]
    assert order == [0, 1, 2, 3, 4, 5, 9, 10, 11, 7]
    assert [[part.index for part in share] for share in left] == [[8], [6]]


@pytest.mark.parametrize("threads", [1, 3])
def test_work_comes_back_in_order_and_no_more_is_made_than_may_be(threads: int) -> None:
    """Early items take longest, so that later ones are done before them."""
    made, at_once, most_at_once, lock = [], 0, 0, threading.Lock()

    def items():
        for number in range(40):
            made.append(number)
            yield number
        raise ValueError("behind the last")

    def work(number: int) -> int:
        nonlocal at_once, most_at_once
        with lock:
            at_once += 1
            most_at_once = max(most_at_once, at_once)
        time.sleep(0.002 * (number % 4 == 0))
        with lock:
            at_once -= 1
        return number

    with ThreadPoolExecutor(threads) as executor:
        results = in_order(work, items(), executor, 5)
        taken_out = []
        for result in itertools.islice(results, 36):
            taken_out.append(result)
            assert len(made) - len(taken_out) <= 4
        with pytest.raises(ValueError, match="behind the last"):
            taken_out += results
    assert taken_out == list(range(36))  # the others had not been taken when items ended badly
    assert made == list(range(40))
    assert most_at_once <= threads


def test_what_the_work_raises_is_raised_where_its_result_is_taken() -> None:
    with ThreadPoolExecutor(2) as executor:
        results = in_order(lambda number: 6 // (3 - number), range(9), executor, 4)
        assert [next(results) for _ in range(3)] == [2, 3, 6]
        with pytest.raises(ZeroDivisionError):
            next(results)
