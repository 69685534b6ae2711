//! The table in JavaScript, with its types.

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
