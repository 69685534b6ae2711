"""MessagePack as typed services use it.

Integers of any width are read where the value fits and written in the fewest bytes. A field
nobody declared is refused, and so is one that comes twice. Reading raises nothing but
DecodeError. Writing a value its type cannot hold raises EncodeError, or, where it is of another
type altogether, one of MISFITS, which encoding a whole message makes an EncodeError.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeVar

T = TypeVar("T")

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_I64: Final = struct.Struct(">q")
_F32: Final = struct.Struct(">f")
_F64: Final = struct.Struct(">d")


# What structs, lists and maps of a frame may take in memory: so much for each of its bytes,
# and so much besides.
_HELD_PER_BYTE: Final = 64
_HELD_BESIDES: Final = 16 << 20
# What the smallest of each takes; a struct has a word more for each field.
_WORD: Final = 8
_STRUCT: Final = 8 * _WORD
_LIST: Final = 10 * _WORD
_MAP: Final = 11 * _WORD


class DecodeError(ValueError):
    """Bytes that are not the value they should be."""

    retry: Final = "unknown"
    """Of an answer: what was asked may have been done."""

    def __init__(self, place: str, reason: str, at: int) -> None:
        # All of them, so that it can be copied and sent to another process.
        super().__init__(place, reason, at)
        self.place = place
        """The field or message being read; ``frame`` outside of any."""
        self.reason = reason
        """What is wrong."""
        self.at = at
        """Where in the frame."""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason} at byte {self.at}"


class EncodeError(ValueError):
    """A value that its type cannot hold: a mistake of the program that encodes it."""

    code: Final = "BAD_ARGUMENT"
    retry: Final = "never"

    def __init__(self, reason: str, place: str = "message") -> None:
        super().__init__(reason, place)
        self.reason = reason
        """What is wrong."""
        self.place = place
        """The field being written; ``message`` outside of any."""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


MISFITS: Final = (
    AttributeError,
    BufferError,
    OverflowError,
    TypeError,
    struct.error,
)
"""What a value of another type raises on its way; an EncodeError once it is told."""


_NOTHING: Final = b"\xc1" * (1 << 16)
"""What no value begins with, and more of it than most lists have items."""


def misfit(
    out: bytearray, decode: Callable[[bytes], object], error: Exception
) -> EncodeError:
    """What is raised of a message whose writing ended in ``error``, with the field's name.

    The field is where what was written can be read no further.
    """
    reason = error.reason if isinstance(error, EncodeError) else str(error)
    try:
        decode(bytes(out + _NOTHING))
    except DecodeError as ended:
        return EncodeError(reason, ended.place)
    return EncodeError(reason)


Read = Callable[["Reader"], T]
Write = Callable[[bytearray, T], None]
# Per name on the wire: the attribute, whether it has to be there, and how its value is read.
Fields = Mapping[bytes, tuple[str, bool, Callable[["Reader"], Any]]]


class Reader:
    """Walks one frame."""

    __slots__ = ("_frame", "_at", "_place", "_room")

    def __init__(self, frame: bytes) -> None:
        self._frame = bytes(frame)
        self._at = 0
        self._place = "frame"
        self._room = len(self._frame) * _HELD_PER_BYTE + _HELD_BESIDES

    def _error(self, reason: str, at: int) -> DecodeError:
        return DecodeError(self._place, reason, at)

    def refuse(self, reason: str, place: str) -> DecodeError:
        """An error about what was read last."""
        return DecodeError(place, reason, self._at)

    def finish(self) -> None:
        """Ends the frame."""
        if self._at < len(self._frame):
            raise self.refuse("bytes behind the message", "frame")

    def _take(self, count: int) -> bytes:
        at = self._at
        end = at + count
        if end > len(self._frame):
            raise self._error("the frame ends too early", len(self._frame))
        self._at = end
        return self._frame[at:end]

    def _byte(self) -> int:
        at = self._at
        if at >= len(self._frame):
            raise self._error("the frame ends too early", at)
        self._at = at + 1
        return self._frame[at]

    def _number(self, count: int) -> int:
        return int.from_bytes(self._take(count), "big")

    def _wrong_type(self, expected: str, found: int) -> DecodeError:
        reason = f"expected {expected}, found byte {found:#04x}"
        return self._error(reason, self._at - 1)

    def boolean(self) -> bool:
        tag = self._byte()
        if tag == 0xC3:
            return True
        if tag == 0xC2:
            return False
        raise self._wrong_type("a boolean", tag)

    def integer(self, least: int, most: int) -> int:
        """An integer of any width between two bounds."""
        at = self._at
        tag = self._byte()
        if tag < 0x80:
            value = tag
        elif tag >= 0xE0:
            value = tag - 256
        elif 0xCC <= tag <= 0xCF:
            value = self._number(1 << (tag - 0xCC))
        elif 0xD0 <= tag <= 0xD3:
            raw = self._take(1 << (tag - 0xD0))
            value = int.from_bytes(raw, "big", signed=True)
        else:
            raise self._wrong_type("an integer", tag)
        if not least <= value <= most:
            raise self._error("an integer out of range", at)
        return value

    def u8(self) -> int:
        return self.integer(0, 0xFF)

    def u16(self) -> int:
        return self.integer(0, 0xFFFF)

    def u32(self) -> int:
        return self.integer(0, 0xFFFFFFFF)

    def u64(self) -> int:
        return self.integer(0, 0xFFFFFFFFFFFFFFFF)

    def i8(self) -> int:
        return self.integer(-0x80, 0x7F)

    def i16(self) -> int:
        return self.integer(-0x8000, 0x7FFF)

    def i32(self) -> int:
        return self.integer(-0x80000000, 0x7FFFFFFF)

    def i64(self) -> int:
        return self.integer(-0x8000000000000000, 0x7FFFFFFFFFFFFFFF)

    def f32(self) -> float:
        tag = self._byte()
        if tag != 0xCA:
            raise self._wrong_type("a 32-bit float", tag)
        value: float = _F32.unpack(self._take(4))[0]
        return value

    def f64(self) -> float:
        tag = self._byte()
        if tag == 0xCB:
            value: float = _F64.unpack(self._take(8))[0]
        elif tag == 0xCA:
            value = _F32.unpack(self._take(4))[0]
        else:
            raise self._wrong_type("a float", tag)
        return value

    def key(self) -> bytes:
        """A string's bytes, to be compared with those that are declared."""
        tag = self._byte()
        if 0xA0 <= tag <= 0xBF:
            return self._take(tag & 31)
        if 0xD9 <= tag <= 0xDB:
            return self._take(self._number(1 << (tag - 0xD9)))
        raise self._wrong_type("a string", tag)

    def word(self, words: Mapping[bytes, T]) -> T:
        """A word of an enum: what ``words`` has for it."""
        at = self._at
        found = words.get(self.key())
        if found is None:
            raise self._error("a word the enum does not have", at)
        return found

    def string(self) -> str:
        raw = self.key()
        try:
            return raw.decode()
        except UnicodeDecodeError:
            at = self._at - len(raw)
            raise self._error("a string that is not UTF-8", at) from None

    def bytes(self) -> bytes:
        tag = self._byte()
        if not 0xC4 <= tag <= 0xC6:
            raise self._wrong_type("bytes", tag)
        return self._take(self._number(1 << (tag - 0xC4)))

    def bin32(self) -> Any:
        """Exactly 32 bytes; typed by the caller, who may have a name for them."""
        at = self._at
        value = self.bytes()
        if len(value) != 32:
            raise self._error(f"expected a length of 32, found {len(value)}", at)
        return value

    def optional(self, read: Read[T]) -> T | None:
        if self._frame[self._at : self._at + 1] == b"\xc0":
            self._at += 1
            return None
        return read(self)

    def _array_length(self) -> int:
        tag = self._byte()
        if 0x90 <= tag <= 0x9F:
            return tag & 15
        if tag in (0xDC, 0xDD):
            return self._number(2 << (tag - 0xDC))
        raise self._wrong_type("an array", tag)

    def _map_length(self) -> int:
        tag = self._byte()
        if 0x80 <= tag <= 0x8F:
            return tag & 15
        if tag in (0xDE, 0xDF):
            return self._number(2 << (tag - 0xDE))
        raise self._wrong_type("a map", tag)

    def _believe(self, count: int, item_bytes_min: int) -> int:
        """Refuses a count of values that the rest of the frame cannot hold."""
        if count * item_bytes_min > len(self._frame) - self._at:
            raise self._error("the frame ends too early", len(self._frame))
        return count

    def _hold(self, size: int) -> None:
        """Counts what a value takes: one that is a byte on the wire may be large here."""
        self._room -= size
        if self._room < 0:
            raise self._error(
                "values that take too much memory for such a frame", self._at
            )

    def list(self, item_bytes_min: int, read: Read[T]) -> list[T]:
        count = self._believe(self._array_length(), item_bytes_min)
        self._hold(_LIST)
        return [read(self) for _ in range(count)]

    def array(self, expected: int, read: Read[T]) -> Sequence[T]:
        at = self._at
        found = self._array_length()
        if found != expected:
            raise self._error(f"expected a length of {expected}, found {found}", at)
        self._hold(_LIST)
        return [read(self) for _ in range(expected)]

    def map(self, item_bytes_min: int, read: Read[T]) -> dict[str, T]:
        values: dict[str, T] = {}
        count = self._believe(self._map_length(), item_bytes_min + 1)
        self._hold(_MAP)
        for _ in range(count):
            at = self._at
            key = self.string()
            if key in values:
                raise self._error("a field or key that is there twice", at)
            values[key] = read(self)
        return values

    def struct(self, place: str, fields: Fields) -> dict[str, Any]:
        """The attributes of a struct; optional ones may be missing."""
        outer, self._place = self._place, place
        values: dict[str, Any] = {}
        count = self._believe(self._map_length(), 2)
        self._hold(_STRUCT + _WORD * len(fields))
        for _ in range(count):
            key = self.key()
            field = fields.get(key)
            if field is None:
                raise self.refuse("a field nobody declared", place)
            name = field[0]
            self._place = f"{place}.{key.decode()}"
            if name in values:
                raise self._error("a field or key that is there twice", self._at)
            values[name] = field[2](self)
            self._place = place
        for key, (name, is_required, _) in fields.items():
            if is_required and name not in values:
                raise self.refuse("a field is missing", f"{place}.{key.decode()}")
        self._place = outer
        return values

    def request(self) -> str:
        """Begins a request's envelope and returns its tag."""
        self._envelope(1)
        return self.response()

    def response(self) -> str:
        """Begins the envelope of a response, an item or an error; returns its tag."""
        self._envelope(2)
        return self.key().decode("latin-1")

    def _envelope(self, expected: int) -> None:
        at = self._at
        found = self._array_length()
        if found != expected:
            raise self._error(f"expected a length of {expected}, found {found}", at)


def write_boolean(out: bytearray, value: bool) -> None:
    if not isinstance(value, bool):
        raise EncodeError(f"{value!r} is no boolean")
    out.append(0xC3 if value else 0xC2)


def _write_integer(out: bytearray, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise EncodeError(f"{value} is no integer from {least} to {most}")
    if value >= 0:
        if value < 0x80:
            out.append(value)
        elif value <= 0xFF:
            out += bytes((0xCC, value))
        elif value <= 0xFFFF:
            out += b"\xcd" + _U16.pack(value)
        elif value <= 0xFFFFFFFF:
            out += b"\xce" + _U32.pack(value)
        else:
            out += b"\xcf" + _U64.pack(value)
    elif value >= -32:
        out.append(value + 256)
    elif value >= -0x80:
        out += bytes((0xD0, value + 256))
    elif value >= -0x8000:
        out += b"\xd1" + _U16.pack(value + 0x10000)
    elif value >= -0x80000000:
        out += b"\xd2" + _U32.pack(value + 0x100000000)
    else:
        out += b"\xd3" + _I64.pack(value)


def write_u8(out: bytearray, value: int) -> None:
    _write_integer(out, value, 0, 0xFF)


def write_u16(out: bytearray, value: int) -> None:
    _write_integer(out, value, 0, 0xFFFF)


def write_u32(out: bytearray, value: int) -> None:
    _write_integer(out, value, 0, 0xFFFFFFFF)


def write_u64(out: bytearray, value: int) -> None:
    _write_integer(out, value, 0, 0xFFFFFFFFFFFFFFFF)


def write_i8(out: bytearray, value: int) -> None:
    _write_integer(out, value, -0x80, 0x7F)


def write_i16(out: bytearray, value: int) -> None:
    _write_integer(out, value, -0x8000, 0x7FFF)


def write_i32(out: bytearray, value: int) -> None:
    _write_integer(out, value, -0x80000000, 0x7FFFFFFF)


def write_i64(out: bytearray, value: int) -> None:
    _write_integer(out, value, -0x8000000000000000, 0x7FFFFFFFFFFFFFFF)


def write_f32(out: bytearray, value: float) -> None:
    if math.isnan(value):
        out += b"\xca\x7f\xc0\x00\x00"
        return
    try:
        out += b"\xca" + _F32.pack(value)
    except OverflowError:
        raise EncodeError(f"{value} is no 32-bit float") from None


def write_f64(out: bytearray, value: float) -> None:
    if math.isnan(value):
        out += b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"
    else:
        out += b"\xcb" + _F64.pack(value)


def _write_counted(out: bytearray, first: int, length: int) -> None:
    if length <= 0xFF:
        out += bytes((first, length))
    elif length <= 0xFFFF:
        out.append(first + 1)
        out += _U16.pack(length)
    else:
        out.append(first + 2)
        out += _U32.pack(length)


def write_string(out: bytearray, value: str) -> None:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise EncodeError("a string with a lone surrogate") from None
    if len(raw) < 32:
        out.append(0xA0 | len(raw))
    else:
        _write_counted(out, 0xD9, len(raw))
    out += raw


def write_bytes(out: bytearray, value: bytes) -> None:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise EncodeError(f"a {type(value).__name__} is no bytes")
    if isinstance(value, memoryview) and not value.c_contiguous:
        raise BufferError("the bytes of a payload must lie side by side")
    _write_counted(out, 0xC4, _bytes_in(value))
    out += value


def _bytes_in(value: bytes) -> int:
    # A view's items may be wider than a byte.
    return value.nbytes if isinstance(value, memoryview) else len(value)


def write_bin32(out: bytearray, value: bytes) -> None:
    if _bytes_in(value) != 32:
        raise EncodeError(f"{_bytes_in(value)} bytes are no bin32")
    write_bytes(out, value)


def write_optional(out: bytearray, value: T | None, write: Write[T]) -> None:
    if value is None:
        out.append(0xC0)
    else:
        write(out, value)


def _write_length(out: bytearray, short: int, wide: int, length: int) -> None:
    if length < 16:
        out.append(short | length)
    elif length <= 0xFFFF:
        out.append(wide)
        out += _U16.pack(length)
    else:
        out.append(wide + 1)
        out += _U32.pack(length)


def write_list(out: bytearray, values: Sequence[T], write: Write[T]) -> None:
    if isinstance(values, (str, bytes, bytearray)):
        raise EncodeError(f"a {type(values).__name__} is no list")
    # A copy: what writes the values, and other threads meanwhile, may change the list.
    values = list(values)
    _write_length(out, 0x90, 0xDC, len(values))
    for value in values:
        write(out, value)


def write_array(
    out: bytearray, expected: int, values: Sequence[T], write: Write[T]
) -> None:
    if len(values) != expected:
        raise EncodeError(f"{len(values)} values where {expected} belong")
    write_list(out, values, write)


def write_map(out: bytearray, values: Mapping[str, T], write: Write[T]) -> None:
    """By code points, which is the byte order of the keys' UTF-8."""
    # A copy, as of a list.
    values = dict(values)
    _write_length(out, 0x80, 0xDE, len(values))
    for key in sorted(values):
        write_string(out, key)
        write(out, values[key])


def _take_machine_code() -> None:
    """Takes the same functions from the package thalweg, where it is installed."""
    try:
        twin = import_module("thalweg.messagepack")
    except ImportError:
        return
    own = globals()
    own.update({name: getattr(twin, name) for name in twin.__all__ if name in own})


_take_machine_code()
