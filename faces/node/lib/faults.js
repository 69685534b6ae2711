"use strict"

// What can go wrong with a call, by name and by number. Written by `cargo xtask faults` from crates/wire/src/fault.rs. Do not edit.

const row = (number, retry, httpStatus, rpcCode, says) =>
  Object.freeze({ number, retry, httpStatus, rpcCode, says })

const FAULTS = Object.freeze({
  REFUSED: row(1, "never", 422, -32000, "the service refused"),
  BAD_REQUEST: row(2, "never", 400, -32602, "the request does not fit the schema"),
  UNKNOWN_COMMAND: row(3, "never", 404, -32601, "the service has no such command"),
  BAD_FRAME: row(4, "never", 400, -32019, "the bytes are no frame"),
  FRAME_TOO_LARGE: row(5, "never", 413, -32020, "the frame is longer than is allowed"),
  DUPLICATE_ID: row(6, "never", 400, -32021, "a call with this id has not ended yet"),
  SCHEMA_MISMATCH: row(7, "never", 409, -32001, "client and server were made from different schemas"),
  VERSION_MISMATCH: row(8, "never", 505, -32002, "client and server speak different versions"),
  NO_SHARED_MEMORY: row(9, "never", 503, -32003, "shared memory was not agreed on"),
  CANCELLED: row(10, "unknown", 499, -32004, "the call was cancelled"),
  DEADLINE_EXCEEDED: row(11, "unknown", 504, -32005, "the deadline passed"),
  ABANDONED: row(12, "unknown", 500, -32006, "the handler gave no answer"),
  OVERLOADED: row(13, "safe", 503, -32007, "a limit was reached: try again later"),
  DRAINING: row(14, "safe", 503, -32008, "the server is ending"),
  OVERRUN: row(15, "unknown", 500, -32009, "the stream ran ahead of its reader"),
  DISCONNECTED: row(16, "unknown", 502, -32010, "the connection ended before the answer came"),
  NOT_SENT: row(17, "safe", 502, -32011, "the request was not sent"),
  NO_SERVER: row(18, "safe", 502, -32012, "nobody listens there"),
  CONNECT_TIMEOUT: row(19, "safe", 504, -32013, "the server did not take the connection in time"),
  PERMISSION_DENIED: row(20, "never", 403, -32014, "this user may not use the endpoint"),
  ADDRESS_IN_USE: row(21, "never", 409, -32015, "another server has the endpoint"),
  CLOSED: row(22, "never", 410, -32016, "this end was closed"),
  BAD_ANSWER: row(23, "unknown", 502, -32017, "the answer does not fit the schema"),
  BROKEN_PEER: row(24, "unknown", 502, -32018, "the peer broke the rules of shared memory"),
  BAD_ARGUMENT: row(25, "never", 400, -32602, "an argument cannot be right"),
  SYSTEM: row(26, "unknown", 500, -32603, "the operating system failed"),
})

const names = []
for (const name in FAULTS) names[FAULTS[name].number] = name

/** The name of a number; `undefined` for 0 and for numbers of a newer version. */
const faultOf = (number) => names[number]

module.exports = { FAULTS, faultOf }
