//! The table in Zig: an enum of the codes, and an error set with the same names.

use super::{NOTICE, lines};
use thalweg_wire::fault::Fault;

/// Why a frame could not be read, as `crates/codegen/runtime/zig/reader.zig` has it.
const UNREAD: [&str; 12] = [
    "Truncated",
    "Trailing",
    "WrongType",
    "OutOfRange",
    "NotUtf8",
    "WrongLength",
    "UnknownField",
    "Duplicate",
    "Missing",
    "UnknownWord",
    "UnknownMessage",
    "TooMuchMemory",
];

pub(super) fn module() -> String {
    let codes =
        lines(|fault| format!("    /// {}\n    {} = {},", fault.meaning(), fault.word(), fault as u16));
    let errors = lines(|fault| format!("    {fault:?},"));
    let to_error = lines(|fault| format!("        .{} => error.{fault:?},", fault.word()));
    let to_fault = lines(|fault| format!("        error.{fault:?} => .{},", fault.word()));
    let unread: String = UNREAD.map(|error| format!("        error.{error},\n")).concat();
    let row = |of: &dyn Fn(Fault) -> String| {
        lines(|fault| format!("            .{} => {},", fault.word(), of(fault)))
    };
    let says = row(&|fault| format!("\"{}\"", fault.says()));
    let retry = row(&|fault| format!(".{}", fault.retry().word()));
    let http = row(&|fault| fault.http_status().to_string());
    format!(
        "//! What can go wrong with a call. {NOTICE}\n\n\
         /// Whether the same call may be made again: never (it would go wrong again), safe (it was not carried out),\n\
         /// unknown (it may have been).\npub const Retry = enum {{ never, safe, unknown }};\n\n\
         /// What went wrong. Codes are never reused; a newer library may know more of them.\n\
         pub const Fault = enum(u16) {{\n{codes}    _,\n\n    \
         /// One sentence for people.\n    pub fn says(self: Fault) []const u8 {{\n        return switch (self) {{\n\
         {says}            _ => \"a fault of a newer version\",\n        }};\n    }}\n\n    \
         /// Whether the same call may be made again.\n    pub fn retry(self: Fault) Retry {{\n        \
         return switch (self) {{\n{retry}            _ => .unknown,\n        }};\n    }}\n\n    \
         /// The HTTP status that says the same.\n    pub fn httpStatus(self: Fault) u16 {{\n        \
         return switch (self) {{\n{http}            _ => 500,\n        }};\n    }}\n}};\n\n\
         /// The same, as errors. `NewerFault` stands for codes that this version does not know.\n\
         pub const Error = error{{\n{errors}    NewerFault,\n}};\n\n\
         /// The error of a fault.\npub fn errorOf(fault: Fault) Error {{\n    return switch (fault) {{\n\
         {to_error}        _ => error.NewerFault,\n    }};\n}}\n\n\
         /// The fault of whatever a call fails with: an answer that cannot be read is a bad one. Nothing for what is no\n\
         /// fault of a call, as `error.OutOfMemory` is none.\n\
         pub fn faultOf(err: anyerror) ?Fault {{\n    return switch (err) {{\n\
         {to_fault}        error.NewerFault => @enumFromInt(0xffff),\n{unread}        => .bad_answer,\n        \
         else => null,\n    }};\n}}\n"
    )
}
