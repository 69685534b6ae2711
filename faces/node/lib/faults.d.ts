// What can go wrong with a call, by name and by number. Written by `cargo xtask faults` from crates/wire/src/fault.rs. Do not edit.

/** Whether the same call may be made again: never (it would go wrong again), safe (it was not carried out),
 * unknown (it may have been). */
export type Retry = "never" | "safe" | "unknown"

export interface FaultRow {
  /** Its number on the wire. */
  readonly number: number
  readonly retry: Retry
  /** The HTTP status that says the same. */
  readonly httpStatus: number
  /** The JSON-RPC code that says the same. */
  readonly rpcCode: number
  /** One sentence for people. */
  readonly says: string
}

export interface Faults {
  /** The service refused, in its own words. */
  readonly REFUSED: FaultRow
  /** The frame is no request of this service: not MessagePack, or fields that are wrong, missing or too many. */
  readonly BAD_REQUEST: FaultRow
  /** No command has this name. */
  readonly UNKNOWN_COMMAND: FaultRow
  /** The bytes are no frames of the protocol; the connection ends. */
  readonly BAD_FRAME: FaultRow
  /** The frame is longer than its reader allows. */
  readonly FRAME_TOO_LARGE: FaultRow
  /** A call was begun under the id of one that has not ended. */
  readonly DUPLICATE_ID: FaultRow
  /** The two ends were generated from different schemas. */
  readonly SCHEMA_MISMATCH: FaultRow
  /** The two ends speak different versions of the protocol. */
  readonly VERSION_MISMATCH: FaultRow
  /** The endpoint offers shared memory only, or none, or has none left. */
  readonly NO_SHARED_MEMORY: FaultRow
  /** The call was cancelled. */
  readonly CANCELLED: FaultRow
  /** The call's deadline passed. */
  readonly DEADLINE_EXCEEDED: FaultRow
  /** The handler ended without an answer. */
  readonly ABANDONED: FaultRow
  /** A bound was reached before any work was done. */
  readonly OVERLOADED: FaultRow
  /** The server is ending and takes nothing new. */
  readonly DRAINING: FaultRow
  /** A stream's producer went on although nobody took what it made. */
  readonly OVERRUN: FaultRow
  /** The connection ended before the answer came. */
  readonly DISCONNECTED: FaultRow
  /** The request was not sent: the connection ended before, or its deadline passed. */
  readonly NOT_SENT: FaultRow
  /** Nobody listens at the endpoint. */
  readonly NO_SERVER: FaultRow
  /** The endpoint did not take the connection in time. */
  readonly CONNECT_TIMEOUT: FaultRow
  /** The endpoint may not be used by this user. */
  readonly PERMISSION_DENIED: FaultRow
  /** Another server has the endpoint. */
  readonly ADDRESS_IN_USE: FaultRow
  /** This end was closed. */
  readonly CLOSED: FaultRow
  /** The answer does not fit the schema. */
  readonly BAD_ANSWER: FaultRow
  /** The peer wrote what no peer may write into shared memory. */
  readonly BROKEN_PEER: FaultRow
  /** An argument that can never be right. */
  readonly BAD_ARGUMENT: FaultRow
  /** The operating system failed. */
  readonly SYSTEM: FaultRow
}

export type FaultName = keyof Faults

export declare const FAULTS: Faults

/** The name of a number; `undefined` for 0 and for numbers of a newer version. */
export declare function faultOf(number: number): FaultName | undefined
