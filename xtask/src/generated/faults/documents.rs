//! The table as a page.

use super::lines;

pub(super) fn page() -> String {
    let rows = lines(|fault| {
        format!(
            "| {} | `{}` | {} | {} | {} | {} |",
            fault as u16,
            fault.word(),
            fault.meaning(),
            fault.retry().word(),
            fault.http_status(),
            fault.rpc_code()
        )
    });
    format!(
        "# What can go wrong with a call\n\n\
         Every client and server, in every language, knows the same faults by the same names and numbers: `Fault::NotSent` in\n\
         Rust, `Fault::not_sent` in C++, `error.NotSent` in Zig, `NOT_SENT` in JavaScript and Python, `THALWEG_NOT_SENT` in C.\n\
         This page and the tables of the languages are written by `cargo xtask faults` from `crates/wire/src/fault.rs`.\n\n\
         *Again* says whether the same call may be made again:\n\n\
         - **never**: it would go wrong again.\n\
         - **safe**: it was not carried out, so nothing happens twice.\n\
         - **unknown**: it may have been carried out. Repeat it only if twice is as good as once.\n\n\
         When a service `refused`, only its own words tell: what it refused may have changed. An answer by JSON-RPC that names no\n\
         fault is **safe** where its number says that this was not JSON or not a request (−32700, −32600), also of a whole batch:\n\
         nothing of it was carried out. With another number it is **unknown**.\n\n\
         | number | name | what it means | again | HTTP | JSON-RPC |\n|---|---|---|---|---|---|\n{rows}"
    )
}
