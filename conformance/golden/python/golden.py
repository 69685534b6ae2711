"""The generated Python against the golden frames.

``crates/codegen/tests/golden.rs`` says what is judged and why. Arguments: the directory of
frames, the file that takes what became of each frame, and the generated package's directory.
"""

import asyncio
import copy
import math
import pickle
import sys
import traceback
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

directory, outcomes_path, package = (Path(argument) for argument in sys.argv[1:4])
sys.path.insert(0, str(package.parent))


types = import_module(f"{package.name}.echo_types")
client_module = import_module(f"{package.name}.echo_client")
server = import_module(f"{package.name}.echo_server")
runtime = import_module(f"{package.name}.messagepack")
service = import_module(f"{package.name}.service")
forks = import_module(f"{package.name}.forks")

passed = failed = 0


def check(name: str, judge: Callable[[], None]) -> None:
    global passed, failed
    try:
        judge()
        passed += 1
    except Exception:
        failed += 1
        print(f"  FAILED: {name}: {traceback.format_exc()}", file=sys.stderr)


def equal(left: object, right: object) -> None:
    if left != right:
        raise AssertionError(f"{left!r} is not {right!r}")


def raises(kind: type[Exception], act: Callable[[], object]) -> None:
    try:
        act()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def frames(path: Path) -> dict[str, bytes]:
    return {file.name[:-4]: file.read_bytes() for file in sorted(path.glob("*.bin"))}


def again(frame: bytes) -> bytes:
    if frame[:1] == b"\x91":
        return types.encode_request(types.decode_request(frame))
    return types.encode_response(types.decode_response(frame))


class Random:
    state = 0x7EA19E65

    def below(self, bound: int) -> int:
        state = self.state
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        self.state = state
        return state % bound


def mutate(random: Random, every: list[bytes]) -> bytes:
    frame = bytearray(every[random.below(len(every))])
    for _ in range(random.below(2) + 1):
        what, at, byte = random.below(8), random.below(len(frame)), random.below(256)
        if what == 0:
            del frame[at]
        elif what == 1:
            frame.insert(at, byte)
        elif what == 2:
            frame[at] = byte
        else:
            frame[at] ^= 1 << (byte & 7)
    return bytes(frame)


golden = frames(directory)


def prefixes(frame: bytes) -> None:
    for length in range(len(frame)):
        raises(runtime.DecodeError, lambda: again(frame[:length]))


def mutations() -> None:
    random, outcomes = Random(), []
    every = list(golden.values())
    mutated = [mutate(random, every) for _ in range(10_000)]
    for frame in [*frames(directory / "refused").values(), *mutated]:
        try:
            back = again(frame)
        except runtime.DecodeError as error:
            outcomes.append(f"- {error.place} {error.at}")
        else:
            equal(again(back), back)
            outcomes.append(back.hex())
    outcomes_path.write_text("".join(f"{line}\n" for line in outcomes))


def values() -> None:
    numbers = types.EchoNumbersResponse(
        tiny=127,
        small=128,
        medium=256,
        large=65_536,
        signed_tiny=-128,
        signed_small=-32_768,
        signed_medium=-2_147_483_648,
        signed_large=-9_223_372_036_854_775_808,
        single=-1.5,
        precise=-math.pi,
    )
    equal(types.encode_response(numbers), golden["echo_numbers_min"])
    places = types.decode_request(golden["echo_places_request"])
    equal(places.places[0].moods["tuesday"], types.Mood.IN_A_HURRY)
    equal(places.grid, [[1, None], [-32_768, -1], [32_767, -32]])
    equal(places.counts["\U00010000"], 256)


def memory() -> None:
    """A struct of optional fields is one byte on the wire, and so are a list and a map.

    So is what a fixed array adds to a value that it holds.
    """

    def arrays(depth: int, reader: runtime.Reader) -> object:
        if depth == 0:
            return reader.u8()
        return reader.array(1, lambda r: arrays(depth - 1, r))

    fields = {f"f{n}".encode(): (f"f{n}", False, runtime.Reader.u64) for n in range(40)}
    reads = [
        (b"\x80", lambda r: r.struct("Wide", fields), 4_000_000),
        (b"\x90", lambda r: r.list(1, runtime.Reader.u8), 4_000_000),
        (b"\x80", lambda r: r.map(1, runtime.Reader.u8), 4_000_000),
        (b"\x91" * 15 + b"\x00", lambda r: arrays(15, r), 140_000),
    ]
    for value, read, too_many in reads:
        for count, is_read in ((10_000, True), (too_many, False)):
            frame = b"\xdd" + count.to_bytes(4, "big") + value * count
            reader = runtime.Reader(frame)
            if is_read:
                equal(len(reader.list(1, read)), count)
            else:
                raises(runtime.DecodeError, lambda: reader.list(1, read))


def wide_views() -> None:
    # A view's items may be wider than a byte: what counts is the bytes.
    wide = array("I", range(8))
    for view in (memoryview(wide), memoryview(wide)[:0], memoryview(b"abc")):
        equal(
            types.encode_request(types.EchoBytes(data=view)),
            types.encode_request(types.EchoBytes(data=view.tobytes())),
        )
    for write in (runtime.write_bytes, runtime.write_bin32):
        viewed, plain = bytearray(), bytearray()
        write(viewed, memoryview(wide))
        write(plain, wide.tobytes())
        equal(viewed, plain)
    many = memoryview(array("I", range(32)))
    raises(runtime.EncodeError, lambda: runtime.write_bin32(bytearray(), many))


def values_that_change() -> None:
    # Here by what writes them; another thread may do so as well.
    listed, mapped = [1, 2, 3], {"a": 1, "b": 2}

    def write(out: bytearray, value: int) -> None:
        listed.clear()
        mapped.clear()
        runtime.write_u8(out, value)

    out = bytearray()
    runtime.write_list(out, listed, write)
    equal(out, b"\x93\x01\x02\x03")
    mapped.update(a=1, b=2)
    out.clear()
    runtime.write_map(out, mapped, write)
    equal(out, b"\x82\xa1a\x01\xa1b\x02")


def misfits() -> None:
    def encode(**fields: object) -> None:
        types.encode_request(
            types.EchoFields(**{"count": 0, "total": 0, "name": "", **fields})
        )

    def places(of: list[object]) -> object:
        return types.EchoPlaces(places=of, counts={}, grid=[])

    raises(runtime.EncodeError, lambda: encode(count=-1))
    raises(runtime.EncodeError, lambda: encode(total=1 << 64))
    raises(runtime.EncodeError, lambda: encode(name="\ud800"))
    raises(runtime.EncodeError, lambda: types.encode_request(types.EchoBlobs(parts=[])))
    # What no type checker looked at.
    sizes = ("tiny", "small", "medium", "large", "single", "precise")
    signed = ("signed_tiny", "signed_small", "signed_medium", "signed_large")
    numbers = {**dict.fromkeys(sizes, 1), **dict.fromkeys(signed, -1)}
    wrong = [
        types.EchoFields(count="5", total=0, name=""),
        types.EchoFields(count=300.5, total=0, name=""),
        types.EchoFields(count=0, total=0, name=None),
        types.EchoFields(count=0, total=0, name=b"ab"),
        types.EchoBytes(data="ab"),
        types.EchoBytes(data=[1, 2]),
        types.EchoNumbers(**{**numbers, "single": 1e300}),
        types.EchoNumbers(**{**numbers, "precise": "5"}),
        types.EchoNumbers(**{**numbers, "precise": 10**400}),
        types.EchoNested(inner=None),
        types.EchoNested(inner=types.Inner(values="ab")),
        types.EchoNested(inner=types.Inner(values=[], flag="yes")),
        places([types.Place(name="", moods={"now": "glad"})]),
        places([types.Place(name="", moods=[("now", "calm")])]),
        types.Inner(values=[]),
    ]
    for request in wrong:
        raises(runtime.EncodeError, lambda: types.encode_request(request))
    many = [types.Place(name="", moods={})] * 1000
    for request, place in (
        (types.EchoFields(count="5", total=0, name=""), "EchoFields.count"),
        (types.EchoFields(count=0, total=1 << 64, name=""), "EchoFields.total"),
        (types.EchoFields(count=0, total=0, name=None), "EchoFields.name"),
        (types.EchoBytes(data=[1, 2]), "EchoBytes.data"),
        (types.EchoBytes(data=memoryview(b"abcdef")[::2]), "EchoBytes.data"),
        (types.EchoAliases(sequence_number="1", digest=b"", chain=[]), "EchoAliases.sequenceNumber"),
        (types.EchoNested(inner=types.Inner(values="ab")), "Inner.values"),
        (places(many + [types.Place(name=5, moods={})] + many), "Place.name"),
        (places([types.Place(name="", moods={"now": "glad"})]), "Place.moods"),
        (places([types.Place(name="", moods={5: "calm"})]), "Place.moods"),
        (places(5), "EchoPlaces.places"),
        (types.Inner(values=[]), "message"),
    ):
        try:
            types.encode_request(request)
        except runtime.EncodeError as error:
            equal(error.place, place)
            equal(str(error), f"{place}: {error.reason}")
        else:
            raise AssertionError(f"{request!r} was taken")


class Service:
    async def bytes(self, request):
        return types.EchoBytesResponse(data=request.data)

    async def fail(self, request):
        raise service.Refused(request.reason)

    async def count(self, request):
        for value in range(request.first, request.last + 1):
            yield types.EchoCountItem(value=value)
        yield types.EchoCountResponse(count=request.last - request.first + 1)


class Wire:
    """Carries frames to a service in the same task."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    async def item(self, frame: bytes) -> bool:
        self.frames.append(frame)
        return len(self.frames) < 5

    def end(self, frame: bytes) -> None:
        self.frames.append(frame)

    async def call(self, request: bytes, **_: object) -> bytes:
        await server.dispatch_unordered(Service(), request, self)
        return self.frames.pop(0)

    async def stream(self, request: bytes, **_: object) -> AsyncIterator[bytes]:
        await server.dispatch_unordered(Service(), request, self)
        while self.frames:
            yield self.frames.pop(0)


def calls() -> None:
    async def run() -> None:
        client = client_module.EchoClient(Wire())
        equal((await client.bytes(types.EchoBytes(data=b"\x01"))).data, b"\x01")
        try:
            await client.fail(types.EchoFail(reason="because"))
        except service.Refused as refused:
            equal(str(refused), "because")
        else:
            raise AssertionError("not refused")
        heard = [v async for v in client.count(types.EchoCount(first=7, last=8))]
        items = [types.EchoCountItem(value=value) for value in (7, 8)]
        equal(heard, [*items, types.EchoCountResponse(count=2)])
        endless = client.count(types.EchoCount(first=0, last=0xFFFFFFFF))
        try:
            equal(len([v async for v in endless]), 0)
        except service.Refused as refused:
            equal(str(refused), "the reader went away")
        equal(
            type(types.decode_response(await Wire().call(b"x"))),
            types.EchoErrorResponse,
        )

    asyncio.run(run())

    class Waiting:
        def call(self, request: bytes, **_: object) -> bytes:
            return golden["echo_bytes_response"]

    waiting = client_module.EchoSyncClient(Waiting())
    equal(waiting.bytes(types.EchoBytes(data=b"")).data, bytes([1, 2, 3, 0, 255]))


def order() -> None:
    equal(types.access_of(types.EchoPut(fork="main", value=b"")), ("write", "main"))
    equal(types.access_of(types.EchoFail(reason="")), None)


def turns() -> None:
    async def run() -> None:
        order = forks.Forks()
        begun: list[object] = []
        gate = asyncio.Event()

        async def job(fork: object) -> None:
            begun.append(fork)
            await gate.wait()

        # Text is the same fork as its bytes, and a negative number as its two's complement.
        asked: list[object] = ["a", b"a", "b", -1, 2**64 - 1, 1]
        jobs = [order.order(("write", fork), partial(job, fork)) for fork in asked]
        tasks = [asyncio.create_task(each) for each in jobs]
        await asyncio.sleep(0)
        equal(begun, ["a", "b", -1, 1])
        gate.set()
        await asyncio.gather(*tasks)
        equal(begun[4:], [b"a", 2**64 - 1])

    asyncio.run(run())


def left() -> None:
    """A call that is closed, and not cancelled, lets go of its turn, or of its place."""

    async def run() -> None:
        order = forks.Forks()
        begun: list[str] = []
        gate = asyncio.Event()

        async def first() -> None:
            await gate.wait()

        async def job(name: str) -> None:
            begun.append(name)

        holds = asyncio.create_task(order.order(("write", 1), first))
        await asyncio.sleep(0)
        waits = [
            order.order(("write", 1), partial(job, name)) for name in ("early", "late")
        ]
        for each in waits:
            each.send(None)
        last = asyncio.create_task(order.order(("write", 1), partial(job, "last")))
        await asyncio.sleep(0)
        waits[0].close()
        gate.set()
        await holds
        # Its turn has come, and it was not gone on with.
        waits[1].close()
        await asyncio.wait_for(last, 10)
        equal(begun, ["last"])

    asyncio.run(run())


def ended() -> None:
    """A handler has cleaned up before its call is over, and once what it yields is no item."""

    class Heard:
        async def item(self, frame: bytes) -> bool:
            return True

        def end(self, frame: bytes) -> None:
            told.append("answered")

    class HeardSync(Heard):
        def item(self, frame: bytes) -> bool:
            return True

    told: list[str] = []

    async def items(*values: object) -> AsyncIterator[object]:
        try:
            for value in values:
                yield value
        finally:
            await asyncio.sleep(0)
            told.append("cleaned up")

    def items_sync(*values: object) -> Iterator[object]:
        try:
            yield from values
        finally:
            told.append("cleaned up")

    item, response = types.EchoCountItem(value=1), types.EchoCountResponse(count=1)
    rest = (types.encode_response, types.EchoCountResponse)
    ordered = forks.Forks()

    async def write(*values: object) -> None:
        async def scan() -> None:
            await service.send_items(items(*values), Heard(), *rest)

        async def put() -> None:
            told.append("the next")

        jobs = [ordered.order(("write", "main"), job) for job in (scan, put)]
        await asyncio.gather(*jobs, return_exceptions=True)

    asyncio.run(write(item, response))
    equal(told, ["cleaned up", "answered", "the next"])
    told.clear()
    asyncio.run(write(types.EchoCountItem(value=-1), response))
    equal(told, ["cleaned up", "the next"])
    told.clear()
    # Held, so that nothing but an end of its own ends it.
    held = items_sync(item, response)
    service.send_items_sync(held, HeardSync(), *rest)
    equal(told, ["cleaned up", "answered"])
    told.clear()
    held = items_sync(types.EchoCountItem(value=-1), response)
    raises(
        runtime.EncodeError,
        lambda: service.send_items_sync(held, HeardSync(), *rest),
    )
    equal(told, ["cleaned up"])


def placed() -> None:
    trailing = frames(directory / "refused")["trailing_byte"]
    missing, other = b"\x91\x92\xabEchoAliases\x80", b"\x91\x92\xabEchoAliases\x81\xaesequenceNumber\xc0"
    head = b"\x91\x92\xaaEchoPlaces\x82\xa6places\x91\x83\xa4name\xa0"
    for frame, place, at in (
        (trailing, "frame", len(trailing) - 1),
        (missing, "EchoAliases.sequenceNumber", 15),
        (other, "EchoAliases.sequenceNumber", 30),
        # An enum's word, by its field and where it begins.
        (head + b"\xa5moods\x81\xa1a\xa4glad", "Place.moods", 38),
        # The struct, behind a field that holds another.
        (head + b"\xa5inner\x81\xa6values\x90\x07", "Place", 44),
    ):
        try:
            again(frame)
        except runtime.DecodeError as error:
            equal((error.place, error.at), (place, at))
            equal(str(error), f"{place}: {error.reason} at byte {error.at}")
            for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
                equal((type(same), str(same), vars(same)), (type(error), str(error), vars(error)))
        else:
            raise AssertionError(f"{frame!r} was taken")


for name, frame in golden.items():
    check(name, lambda: equal(again(frame), frame))
    check(f"every prefix of {name}", lambda: prefixes(frame))
for name, frame in frames(directory / "accepted").items():
    check(name, lambda: equal(again(frame), golden[name.split(".")[0]]))
for name, frame in frames(directory / "refused").items():
    check(f"refused {name}", lambda: raises(runtime.DecodeError, lambda: again(frame)))
check("what is wrong is placed by its name on the wire", placed)
check("mutations", mutations)
check("values are what the frames say", values)
check("what reading holds in memory is bounded by the frame", memory)
check("a view of wide items is written as its bytes", wide_views)
check("values that change while they are written stay one message", values_that_change)
check("values that do not fit are refused", misfits)
check("calls are answered and streams end", calls)
check("requests say how they are ordered", order)
check("calls take their turn per fork", turns)
check("a call that is closed while it waits is not waited for", left)
check("a stream has cleaned up before its call is over", ended)
print(f"golden-python: {passed} passed, {failed} failed")
sys.exit(failed != 0)
