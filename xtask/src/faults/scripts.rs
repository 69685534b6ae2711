//! The table in JavaScript, with its types, and in Python.

use super::{NOTICE, lines, shout};

pub(super) fn javascript() -> String {
    let rows = lines(|fault| {
        format!(
            "  {}: row({}, \"{}\", {}, {}, \"{}\"),",
            shout(fault),
            fault as u16,
            fault.retry().word(),
            fault.http_status(),
            fault.rpc_code(),
            fault.says()
        )
    });
    format!(
        "\"use strict\"\n\n// What can go wrong with a call, by name and by number. {NOTICE}\n\n\
         const row = (number, retry, httpStatus, rpcCode, says) =>\n  \
         Object.freeze({{ number, retry, httpStatus, rpcCode, says }})\n\n\
         const FAULTS = Object.freeze({{\n{rows}}})\n\n\
         const names = []\nfor (const name in FAULTS) names[FAULTS[name].number] = name\n\n\
         /** The name of a number; `undefined` for 0 and for numbers of a newer version. */\n\
         const faultOf = (number) => names[number]\n\nmodule.exports = {{ FAULTS, faultOf }}\n"
    )
}

pub(super) fn typescript() -> String {
    let names = lines(|fault| format!("  /** {} */\n  readonly {}: FaultRow", fault.meaning(), shout(fault)));
    format!(
        "// What can go wrong with a call, by name and by number. {NOTICE}\n\n\
         /** Whether the same call may be made again: never (it would go wrong again), safe (it was not carried out),\n \
         * unknown (it may have been). */\nexport type Retry = \"never\" | \"safe\" | \"unknown\"\n\n\
         export interface FaultRow {{\n  /** Its number on the wire. */\n  readonly number: number\n  \
         readonly retry: Retry\n  /** The HTTP status that says the same. */\n  readonly httpStatus: number\n  \
         /** The JSON-RPC code that says the same. */\n  readonly rpcCode: number\n  \
         /** One sentence for people. */\n  readonly says: string\n}}\n\n\
         export interface Faults {{\n{names}}}\n\nexport type FaultName = keyof Faults\n\n\
         export declare const FAULTS: Faults\n\n\
         /** The name of a number; `undefined` for 0 and for numbers of a newer version. */\n\
         export declare function faultOf(number: number): FaultName | undefined\n"
    )
}

pub(super) fn python() -> String {
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
    format!(
        "\"\"\"What can go wrong with a call, by name and by number. {NOTICE}\"\"\"\n\n\
         from enum import IntEnum, unique\nfrom typing import Final, Literal\n\n\
         Retry = Literal[\"never\", \"safe\", \"unknown\"]\n\
         \"\"\"Whether the same call may be made again: it would go wrong again, it was not carried out, it may have been.\"\"\"\n\n\n\
         @unique\nclass Fault(IntEnum):\n    \"\"\"What went wrong. Numbers are never reused; a newer library may know more of \
         them.\"\"\"\n\n{members}\n    @property\n    def retry(self) -> Retry:\n        \
         \"\"\"Whether the same call may be made again.\"\"\"\n        return _ROWS[self][0]\n\n    \
         @property\n    def http_status(self) -> int:\n        \"\"\"The HTTP status that says the same.\"\"\"\n        \
         return _ROWS[self][1]\n\n    @property\n    def rpc_code(self) -> int:\n        \
         \"\"\"The JSON-RPC code that says the same.\"\"\"\n        return _ROWS[self][2]\n\n    \
         @property\n    def says(self) -> str:\n        \"\"\"One sentence for people.\"\"\"\n        \
         return _ROWS[self][3]\n\n\n_ROWS: Final[dict[Fault, tuple[Retry, int, int, str]]] = {{\n{rows}}}\n"
    )
}
