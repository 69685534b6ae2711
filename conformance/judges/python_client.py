"""The official Python client as a judge: what its documentation shows, against our server (see README.md).

Release 0.1.0 knows neither producers nor closing as such. Both are headers, and headers it can send, callables
included; so the checks of those go through its own append and read paths as well.
"""

import asyncio
import json
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import httpx
from durable_streams import (
    AsyncDurableStream,
    DurableStream,
    DurableStreamError,
    SeqConflictError,
    StreamConsumedError,
    StreamExistsError,
    StreamNotFoundError,
    astream,
    stream,
)

BASE = sys.argv[1]
CHECK_LIMIT_S = 60
LARGE_BYTES = 3 << 20
JSON = "application/json"
checks = []


def tell(**message):
    print(json.dumps(message), flush=True)


def url(name):
    return f"{BASE}/v1/stream/python-{name}"


def restart():
    """Ends the server with kill -9 and starts it again on the same data."""
    global BASE
    tell(server="kill")
    sys.stdin.readline()
    tell(server="start")
    BASE = sys.stdin.readline().strip()


def check(function):
    checks.append(function)
    return function


def equal(got, expected):
    if got != expected:
        raise AssertionError(f"expected {str(expected)[:500]}, got {str(got)[:500]}")


def raises(kind, body, status=None):
    try:
        body()
    except kind as error:
        if status is not None:
            equal(error.status, status)
        return
    raise AssertionError(f"no {kind.__name__}")


def read_json(name, **options):
    with stream(url(name), live=False, **options) as response:
        return [item for item in response.iter_json()]


def append_slowly(name, items):
    """Appends one by one, from a thread of its own."""

    def run():
        with DurableStream(url(name), content_type=JSON) as handle:
            for item in items:
                time.sleep(0.02)
                handle.append(item)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def follow(name, live, count, seen=None, offset="-1"):
    """Follows a stream until `count` items came, reopening from the last event's offset as often as it must."""
    seen = [] if seen is None else seen
    while len(seen) < count:
        try:
            with stream(url(name), offset=offset, live=live) as response:
                for event in response.iter_events(mode="json"):
                    seen.extend(event.data)
                    offset = event.next_offset
                    if len(seen) >= count:
                        break
        except httpx.TransportError:
            time.sleep(0.05)
    return seen


async def follow_async(name, live, count):
    seen, offset = [], "-1"
    while len(seen) < count:
        try:
            async with astream(url(name), offset=offset, live=live) as response:
                async for event in response.iter_events(mode="json"):
                    seen.extend(event.data)
                    offset = event.next_offset
                    if len(seen) >= count:
                        break
        except httpx.TransportError:
            await asyncio.sleep(0.05)
    return seen


@check
def create_is_idempotent_and_tells_conflicts():
    handle = DurableStream.create(url("create"), content_type="text/plain")
    DurableStream.create(url("create"), content_type="text/plain")
    raises(StreamExistsError, lambda: DurableStream.create(url("create"), content_type=JSON))
    head = handle.head()
    equal((head.exists, head.content_type), (True, "text/plain"))
    with handle.stream(live=False) as response:
        equal((response.read_bytes(), response.up_to_date, response.offset), (b"", True, head.offset))


@check
def a_missing_stream_is_not_found():
    raises(StreamNotFoundError, lambda: DurableStream.connect(url("missing")))
    raises(StreamNotFoundError, lambda: DurableStream.delete_static(url("missing")))
    raises(StreamNotFoundError, lambda: stream(url("missing")))
    handle = DurableStream(url("missing"), content_type="text/plain")
    raises(DurableStreamError, lambda: handle.append(b"x"), status=404)


@check
def connect_learns_the_content_type():
    DurableStream.create(url("connect"), content_type="application/x-thing")
    equal(DurableStream.connect(url("connect")).content_type, "application/x-thing")


@check
def bytes_come_back_as_they_went():
    handle = DurableStream.create(url("bytes"), content_type="application/octet-stream")
    every = bytes(range(256))
    handle.append(every)
    handle.append(every[::-1])
    with handle.stream(live=False) as response:
        equal(response.read_bytes(), every + every[::-1])
        raises(StreamConsumedError, lambda: response.read_bytes())


@check
def text_comes_back_as_it_went():
    handle = DurableStream.create(url("text"), content_type="text/plain")
    handle.append("Grüße, ")
    handle.append("世界 🌍\n")
    with stream(url("text"), live=False) as response:
        equal("".join(response.iter_text()), "Grüße, 世界 🌍\n")


@check
def json_values_come_back_one_by_one():
    items = [{"a": [1, 2.5, None]}, "text", 7, True, None, [], [[1], [2]], {"ü": "\u2028 \"quoted\" \n"}]
    handle = DurableStream.create(url("json"), content_type=JSON)
    for item in items:
        handle.append(item)
    equal(read_json("json"), items)


@check
def a_first_body_is_content():
    DurableStream.create(url("body"), content_type=JSON, body=[{"n": 1}, {"n": 2}])
    equal(read_json("body"), [{"n": 1}, {"n": 2}])
    DurableStream.create(url("body-text"), content_type="text/plain", body="first")
    with stream(url("body-text"), live=False) as response:
        equal(response.read_text(), "first")


@check
def threads_share_batches_without_loss():
    handle = DurableStream.create(url("threads"), content_type=JSON)
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda n: handle.append({"n": n}), range(300)))
    equal(sorted(item["n"] for item in read_json("threads")), list(range(300)))
    equal(max(result.next_offset for result in results), handle.head().offset)


@check
def without_batching_order_is_kept():
    handle = DurableStream.create(url("ordered"), content_type=JSON, batching=False)
    offsets = [handle.append(n).next_offset for n in range(50)]
    equal(offsets, sorted(set(offsets)))
    equal(read_json("ordered"), list(range(50)))


@check
def a_sequence_that_falls_back_is_refused():
    handle = DurableStream.create(url("seq"), content_type="text/plain")
    handle.append(b"one", seq="0002")
    raises(SeqConflictError, lambda: handle.append(b"late", seq="0001"))
    raises(SeqConflictError, lambda: handle.append(b"same", seq="0002"))
    handle.append(b" two", seq="0003")
    with handle.stream(live=False) as response:
        equal(response.read_bytes(), b"one two")


@check
def refusals_write_nothing():
    handle = DurableStream.create(url("refused"), content_type="text/plain", body="whole")
    raises(DurableStreamError, lambda: handle.append(b""), status=400)
    raises(SeqConflictError, lambda: handle.append({}, content_type=JSON))
    raises(DurableStreamError, lambda: stream(url("refused"), offset="no such offset"), status=400)
    with handle.stream(live=False) as response:
        equal(response.read_bytes(), b"whole")


@check
def a_long_history_comes_in_chunks():
    handle = DurableStream.create(url("large"), content_type="application/octet-stream")
    data = b"".join(n.to_bytes(4, "big") for n in range(LARGE_BYTES // 4))
    handle.append(data)
    with stream(url("large"), live=False) as response:
        equal(b"".join(response) == data, True)
        equal(response.up_to_date, True)
    with stream(url("large")) as response:
        equal(response.read_bytes() == data, True)


@check
def every_offset_is_a_place_to_resume():
    handle = DurableStream.create(url("resume"), content_type=JSON)
    offsets = ["-1", *(handle.append({"n": n}).next_offset for n in range(20))]
    for n, offset in enumerate(offsets):
        equal([item["n"] for item in read_json("resume", offset=offset)], list(range(n, 20)))


@check
def long_poll_follows():
    DurableStream.create(url("poll"), content_type=JSON, body=[0, 1])
    writer = append_slowly("poll", range(2, 30))
    with stream(url("poll"), offset="-1", live="long-poll") as response:
        seen = []
        for item in response.iter_json():
            seen.append(item)
            if len(seen) == 30:
                break
    writer.join()
    equal(seen, list(range(30)))


@check
def long_poll_outlasts_silence():
    handle = DurableStream.create(url("silence"), content_type=JSON)
    timer = threading.Timer(2.5, lambda: handle.append("at last"))
    timer.start()
    with stream(url("silence"), live="long-poll", offset="-1") as response:
        equal(next(response.iter_json()), "at last")


@check
def auto_catches_up_and_follows():
    DurableStream.create(url("auto"), content_type=JSON, body=[0, 1])
    with stream(url("auto")) as response:
        equal(response.read_json(), [0, 1])
    writer = append_slowly("auto", range(2, 20))
    equal(follow("auto", "auto", 20), list(range(20)))
    writer.join()


@check
def sse_follows_across_the_ends_of_responses():
    DurableStream.create(url("sse"), content_type=JSON, body=[0, 1])
    writer = append_slowly("sse", range(2, 120))
    equal(follow("sse", "sse", 120), list(range(120)))
    writer.join()


@check
def sse_carries_text_line_by_line():
    text = "one\n\n  indented\ndata: not a field\n: no comment\nevent: data\n"
    handle = DurableStream.create(url("sse-text"), content_type="text/plain", body=text)
    with handle.stream(offset="-1", live="sse") as response:
        event = next(iter(response.iter_events(mode="text")))
    equal((event.data, event.up_to_date, event.next_offset), (text, True, handle.head().offset))


@check
def a_producer_writes_once():
    state = {"epoch": 0, "seq": 0}
    headers = {
        "Producer-Id": "python",
        "Producer-Epoch": lambda: str(state["epoch"]),
        "Producer-Seq": lambda: str(state["seq"]),
    }
    handle = DurableStream.create(url("producer"), content_type=JSON)
    handle = DurableStream(url("producer"), content_type=JSON, headers=headers)

    def append(epoch, seq, item):
        state.update(epoch=epoch, seq=seq)
        return handle.append(item)

    first = append(0, 0, "a").next_offset
    equal(append(0, 0, "a").next_offset, first)
    append(0, 1, "b")
    raises(SeqConflictError, lambda: append(0, 5, "gap"))
    append(1, 0, "c")
    raises(DurableStreamError, lambda: append(0, 2, "zombie"), status=403)
    equal(read_json("producer"), ["a", "b", "c"])


@check
def closing_is_seen_as_the_end():
    handle = DurableStream.create(url("closed"), content_type=JSON, body=[1, 2])
    closing = DurableStream(url("closed"), content_type=JSON, headers={"Stream-Closed": "true"})
    closing.append(3)
    raises(SeqConflictError, lambda: handle.append(4))
    with handle.stream(live=False) as response:
        equal((response.read_json(), response.headers["stream-closed"]), ([1, 2, 3], "true"))
        end = response.offset
    with handle.stream(offset=end, live="long-poll") as response:
        equal((response.status, response.headers["stream-closed"], response.up_to_date), (204, "true", True))
    # A live response over a closed stream ends by itself, after everything.
    with handle.stream(offset="-1", live="sse") as response:
        equal(list(response.iter_json()), [1, 2, 3])


@check
def lifetimes_belong_to_the_configuration():
    DurableStream.create(url("ttl"), content_type=JSON, ttl_seconds=3600)
    DurableStream.create(url("ttl"), content_type=JSON, ttl_seconds=3600)
    raises(StreamExistsError, lambda: DurableStream.create(url("ttl"), content_type=JSON, ttl_seconds=60))
    DurableStream.create(url("expires"), content_type=JSON, expires_at="2099-01-01T00:00:00Z")
    both = {"ttl_seconds": 60, "expires_at": "2099-01-01T00:00:00Z"}
    raises(DurableStreamError, lambda: DurableStream.create(url("both"), **both), status=400)


@check
def deleted_is_gone_and_the_name_is_free():
    handle = DurableStream.create(url("deleted"), content_type=JSON, body=["old"])
    offset = handle.head().offset
    handle.delete()
    raises(StreamNotFoundError, handle.head)
    raises(StreamNotFoundError, handle.delete)
    DurableStream.create(url("deleted"), content_type=JSON, body=["new"])
    equal(read_json("deleted"), ["new"])
    # An offset of the stream that is gone is no place in the one that took its name.
    raises(DurableStreamError, lambda: stream(url("deleted"), offset=offset))


@check
def async_writes_and_reads():
    async def run():
        async with await AsyncDurableStream.create(url("async"), content_type=JSON) as handle:
            await asyncio.gather(*(handle.append({"n": n}) for n in range(200)))
            async with handle.stream(live=False) as response:
                items = await response.read_json()
            equal(sorted(item["n"] for item in items), list(range(200)))
            await handle.delete()
            try:
                await handle.head()
            except StreamNotFoundError:
                return
            raise AssertionError("deleted, and still there")

    asyncio.run(run())


def async_follows(live):
    name = f"async-{live}"
    DurableStream.create(url(name), content_type=JSON, body=[0, 1])
    writer = append_slowly(name, range(2, 40))

    async def run():
        return await asyncio.gather(*(follow_async(name, live, 40) for _ in range(5)))

    equal(asyncio.run(run()), [list(range(40))] * 5)
    writer.join()


@check
def async_long_poll_follows():
    async_follows("long-poll")


@check
def async_sse_follows():
    async_follows("sse")


@check
def a_saved_offset_outlives_the_server():
    handle = DurableStream.create(url("saved"), content_type=JSON, body=["before", "read"])
    with handle.stream(live=False) as response:
        equal(response.read_json(), ["before", "read"])
        saved = response.offset
    handle.append("acknowledged")
    restart()
    equal(read_json("saved", offset=saved), ["acknowledged"])
    with DurableStream.connect(url("saved")) as again:
        equal(again.content_type, JSON)
        again.append("after")
    equal(read_json("saved", offset=saved), ["acknowledged", "after"])
    equal(read_json("saved"), ["before", "read", "acknowledged", "after"])


@check
def followers_and_a_producer_live_through_a_kill():
    count = 150
    DurableStream.create(url("kill"), content_type=JSON)
    half = threading.Event()

    def write():
        seq = [0]
        headers = {"Producer-Id": "survivor", "Producer-Epoch": "0", "Producer-Seq": lambda: str(seq[0])}
        for n in range(count):
            seq[0] = n
            while True:
                try:
                    with DurableStream(url("kill"), content_type=JSON, headers=headers) as handle:
                        handle.append(n)
                    break
                except httpx.TransportError:
                    # Perhaps it was written, perhaps not: the same number again, and the server knows.
                    time.sleep(0.05)
            if n == count // 2:
                half.set()
            time.sleep(0.005)

    with ThreadPoolExecutor(3) as pool:
        tails = [pool.submit(follow, "kill", live, count) for live in ("sse", "long-poll")]
        writer = pool.submit(write)
        half.wait()
        restart()
        writer.result()
        for tail in tails:
            equal(tail.result(), list(range(count)))
    equal(read_json("kill"), list(range(count)))


def main():
    for function in checks:
        outcome = [f"nothing after {CHECK_LIMIT_S} s"]

        def run():
            try:
                function()
                outcome[0] = None
            except BaseException:
                outcome[0] = traceback.format_exc()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(CHECK_LIMIT_S)
        name = function.__name__.replace("_", " ")
        if outcome[0] is None:
            tell(passed=name)
        else:
            tell(failed=name, why=outcome[0])
    tell(done=len(checks))


main()
