"""MessagePack as typed services use it, in machine code.

What `thalweg codegen --runtime thalweg` imports, and what generated code that brought its own copy takes instead
where this package is installed: the same functions, the same bytes, the same errors.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ._native import (
    Reader,
    write_array,
    write_bin32,
    write_boolean,
    write_bytes,
    write_f32,
    write_f64,
    write_i8,
    write_i16,
    write_i32,
    write_i64,
    write_list,
    write_map,
    write_optional,
    write_string,
    write_u8,
    write_u16,
    write_u32,
    write_u64,
)

T = TypeVar("T")

Read = Callable[[Reader], T]
Write = Callable[[bytearray, T], None]
Fields = Mapping[bytes, tuple[str, bool, Callable[[Reader], Any]]]
"""Per name on the wire: the attribute, whether it has to be there, and how its value is read."""


class DecodeError(ValueError):
    """Bytes that are not the value they should be."""

    retry: Final = "unknown"
    """Of an answer: what was asked may have been done."""

    def __init__(self, place: str, reason: str, at: int) -> None:
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
        """The field being written; `message` outside of any."""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


MISFITS: Final = (AttributeError, BufferError, OverflowError, TypeError)
"""What a value of another type raises on its way; an EncodeError once it is told."""


_NOTHING: Final = b"\xc1" * (1 << 16)
"""What no value begins with, and more of it than most lists have items."""


def misfit(out: bytearray, decode: Callable[[bytes], object], error: Exception) -> EncodeError:
    """What is raised of a message whose writing ended in `error`, with the field's name.

    The field is where what was written can be read no further.
    """
    reason = error.reason if isinstance(error, EncodeError) else str(error)
    try:
        decode(bytes(out + _NOTHING))
    except DecodeError as ended:
        return EncodeError(reason, ended.place)
    return EncodeError(reason)


__all__ = [
    "DecodeError",
    "EncodeError",
    "Fields",
    "MISFITS",
    "Read",
    "Reader",
    "Write",
    "misfit",
    "write_array",
    "write_bin32",
    "write_boolean",
    "write_bytes",
    "write_f32",
    "write_f64",
    "write_i8",
    "write_i16",
    "write_i32",
    "write_i64",
    "write_list",
    "write_map",
    "write_optional",
    "write_string",
    "write_u8",
    "write_u16",
    "write_u32",
    "write_u64",
]
