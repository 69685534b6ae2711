"""What a type checker must accept, and in the lines that ignore an error, what it must not: checked by `mypy --strict`,
which also complains about a line that ignores nothing. Never run."""

import asyncio
from typing import assert_type

import numpy
import thalweg
from numpy.typing import NDArray


def write(store: thalweg.Store) -> int:
    log = store.log("orders")
    log.append(bytearray(b"x"), time=5)
    log.append_many(number.to_bytes(4) for number in range(3))
    log.append("text")  # type: ignore[arg-type]
    log.append(b"x", 5, False)  # type: ignore[call-arg]
    with store.transaction(time=1) as transaction:
        transaction.append(log, memoryview(b"y"))
        transaction.append(b"y")  # type: ignore[call-arg, arg-type]
    return log.append(b"z", wait=False)


def read(log: thalweg.Log) -> bytes:
    for entry in log.query(start=1, end=2, uncommitted=True):
        assert_type(entry, thalweg.Entry)
        assert_type(entry.data, memoryview)
        assert_type(entry.time, int)
        assert_type(entry.last, bool)
        memoryview(entry)
        entry.time = 5  # type: ignore[misc]
    for batch in log.scan(limit=10):
        assert_type(batch.times, NDArray[numpy.uint64])
        assert_type(batch.lengths, NDArray[numpy.uint32])
        assert_type(batch.data(0), memoryview)
    cursor = log.cursor(tail=True)
    cursor.seek(exact=1)
    assert_type(cursor.find(1), thalweg.Entry | None)
    while (following := cursor.next()) is not None:
        assert_type(following, thalweg.Entry)
    assert_type(cursor.wait(1.5), bool)
    log.query(begin=1)  # type: ignore[call-arg]
    return bytes(next(log.query()))


async def follow(log: thalweg.Log) -> None:
    async for entry in log.tail(uncommitted=True):
        assert_type(entry, thalweg.Entry)


def offline() -> None:
    assert_type(thalweg.backup("data", "backup"), thalweg.Backup)
    assert_type(thalweg.restore("backup", to="again").end, int)
    thalweg.backup("data")  # type: ignore[call-arg]
    for piece in thalweg.parse("again"):
        match piece:
            case thalweg.SegmentPiece():
                assert_type(piece.file, str)
            case thalweg.BatchPiece():
                assert_type(piece.touched, list[tuple[int, int]])
            case thalweg.FramePiece():
                assert_type(piece.payload, bytes)
                assert_type(piece.name, str | None)
                piece.kind == "enter"  # type: ignore[comparison-overlap]
            case thalweg.EndPiece():
                assert_type(piece.torn_bytes, int)
            case _:
                assert_type(piece, thalweg.Damage)


def main() -> None:
    try:
        with thalweg.open("data", durability="os") as store:
            write(store)
            read(store.log("orders"))
            asyncio.run(follow(store.log("orders")))
            assert_type(store.logs(), list[str])
            assert_type(store.maintain(), bool)
            assert_type(store.stats().durable, int)
            assert_type(store.stats().index_bytes, int)
            assert_type(store.backup("backup").linked, int)
            assert_type(store.verify().damage, list[thalweg.Damage])
            assert_type(store.verify().checkpoints, int)
        thalweg.open("data", durability="sometimes")  # type: ignore[arg-type]
    except thalweg.Damaged as damaged:
        assert_type(damaged.resumes, int | None)
    except thalweg.Error as error:
        assert_type(error.code, str)
