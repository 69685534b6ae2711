"""What is written and what must come back: the entries of bench/src/log/workload.rs, number for number."""

BASE_TIME = 1_700_000_000_000_000
"""Time of entry 0, microseconds since the epoch."""
STEP = 1_000
"""Microseconds from one entry to the next."""
PAYLOAD_BYTES = 100
"""Bytes of every payload."""
TICK_ENTRIES = 50
"""Entries that one tick of a writer adds."""

_FILLING = b"." * (PAYLOAD_BYTES - 9)


def time(number: int) -> int:
    """Time of an entry."""
    return BASE_TIME + number * STEP


def payload(number: int) -> bytes:
    """Payload of an entry: its number's low byte first, then the number, then filling."""
    return bytes((number & 0xFF,)) + number.to_bytes(8, "little") + _FILLING


class Sum:
    """What reading entries adds up to. What a way of reading does not take up stays 0, and is not compared."""

    __slots__ = ("entries", "times", "places", "lengths", "firsts")

    def __init__(self, entries: int = 0, times: int = 0, places: int = 0, lengths: int = 0, firsts: int = 0) -> None:
        self.entries = entries
        self.times = times
        self.places = places
        self.lengths = lengths
        self.firsts = firsts

    def add(self, other: "Sum") -> None:
        """Takes what somebody else summed."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def check(self, wanted: "Sum", takes: tuple[str, ...], side: str) -> None:
        """Fails unless this is what was there; `takes` names what besides the entries' number was read. Arrays of 64
        bits sum modulo 2^64."""
        for name in ("entries", *takes):
            if (getattr(self, name) - getattr(wanted, name)) % 2**64:
                raise AssertionError(f"{side}: {name} {getattr(self, name)}, there was {getattr(wanted, name)}")


def _below(number: int) -> int:
    return number * (number - 1) // 2


def _first_bytes(number: int) -> int:
    return number // 256 * 255 * 128 + _below(number % 256)


def expected(start: int, count: int) -> Sum:
    """What entries `start .. start + count` add up to."""
    numbers = _below(start + count) - _below(start)
    return Sum(
        entries=count,
        times=count * BASE_TIME + numbers * STEP,
        lengths=count * PAYLOAD_BYTES,
        firsts=_first_bytes(start + count) - _first_bytes(start),
    )
