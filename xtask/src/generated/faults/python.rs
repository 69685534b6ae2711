//! The table in Python: an enum, and an exception per fault.

use super::{NOTICE, lines, shout};
use thalweg_wire::fault::Fault;

const HEAD: &str = r#"
from enum import IntEnum, unique
from typing import ClassVar, Final, Literal, TypeAlias

from .errors import Error

Retry: TypeAlias = Literal["never", "safe", "unknown"]
"""Whether the same call may be made again: it would go wrong again, it was not carried out, it may have been."""


@unique
class Fault(IntEnum):
    """What went wrong. Numbers are never reused; a newer library may know more of them."""

"#;

const PROPERTIES: &str = r#"
    @property
    def retry(self) -> Retry:
        """Whether the same call may be made again."""
        return _ROWS[self][0]

    @property
    def http_status(self) -> int:
        """The HTTP status that says the same."""
        return _ROWS[self][1]

    @property
    def rpc_code(self) -> int:
        """The JSON-RPC code that says the same."""
        return _ROWS[self][2]

    @property
    def says(self) -> str:
        """One sentence for people."""
        return _ROWS[self][3]


"#;

const BASE: &str = r#"

class ServiceError(Error):
    """Anything that goes wrong with a service: each fault has a class of its own below."""

    fault: ClassVar[Fault] = Fault.SYSTEM

    detail: str
    """What, where, and what to do about it."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        if self.detail and self.fault is Fault.REFUSED:
            return self.detail
        return f"{self.fault.says}: {self.detail}" if self.detail else self.fault.says

    @property
    def retry(self) -> Retry:
        """Whether the same call may be made again."""
        return self.fault.retry
"#;

pub(super) fn module() -> String {
    let members = lines(|fault| {
        format!("    {} = {}\n    \"\"\"{}\"\"\"", shout(fault), fault as u16, fault.meaning())
    });
    let rows = lines(|fault| {
        format!(
            "    Fault.{}: (\"{}\", {}, {}, \"{}\"),",
            shout(fault),
            fault.retry().word(),
            fault.http_status(),
            fault.rpc_code(),
            fault.says()
        )
    });
    let errors = lines(|fault| {
        format!(
            "\n\nclass {fault:?}({}):\n    \"\"\"{}\"\"\"\n\n    fault = Fault.{name}\n    code = \"{name}\"",
            bases(fault),
            fault.meaning(),
            name = shout(fault)
        )
    });
    let classes = lines(|fault| format!("    Fault.{}: {fault:?},", shout(fault)));
    format!(
        "\"\"\"What can go wrong with a call, by name, by number and as exceptions. {NOTICE}\"\"\"\n{HEAD}{members}{PROPERTIES}\
         _ROWS: Final[dict[Fault, tuple[Retry, int, int, str]]] = {{\n{rows}}}\n{BASE}{errors}\n\n\
         BY_FAULT: Final[dict[int, type[ServiceError]]] = {{\n{classes}}}\n\"\"\"The exceptions by their faults.\"\"\"\n"
    )
}

/// What a fault is caught as: by its own name, and as what Python's programs catch anyway.
const fn bases(fault: Fault) -> &'static str {
    match fault {
        Fault::DeadlineExceeded | Fault::ConnectTimeout => "ServiceError, TimeoutError",
        Fault::Disconnected | Fault::NotSent | Fault::NoServer => "ServiceError, ConnectionError",
        Fault::PermissionDenied => "ServiceError, PermissionError",
        _ => "ServiceError",
    }
}
