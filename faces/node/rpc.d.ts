// JSON-RPC, as a user of `thalweg/rpc` sees it.

import { type Bytes, ThalwegError } from "./index.js"
import type { FaultName, Retry } from "./lib/faults.js"

/**
 * Parameters by their names, in an object or a `Map`, or in their order, in an array. In them a `bigint` goes as an integer, a
 * `Uint8Array` as base64, a `Map` as an object.
 */
export type Params = object | null | undefined

/** A method and its parameters. */
export type Call = readonly [method: string, params?: Params]

export interface RpcOptions {
  /** How long an answer is waited for, connecting included, where a call says nothing else; a minute unless said. */
  deadlineMs?: number | undefined
  /** Connections to one address, 8 unless said; further calls wait for one to be free. */
  connectionsMax?: number | undefined
  /** Connections that are kept while nothing goes over them, of all addresses together; 2 unless said. */
  idleMax?: number | undefined
  /** How long they are kept; 30,000 ms unless said. */
  idleForMs?: number | undefined
  /** Requests that have not ended, 1,024 unless said; one more fails with `OVERLOADED`. */
  inFlightMax?: number | undefined
  /** The longest answer, 64 MiB unless said. */
  answerBytesMax?: number | undefined
  /** What lets it in where a server has tokens: it goes with every request. */
  token?: string | undefined
}

export interface AskOptions {
  /** Another time than the client's. */
  readonly deadlineMs?: number | undefined
  /** Twice is as good as once: may be sent again when a connection ends before the answer comes. */
  readonly idempotent?: boolean | undefined
  /** Another service than the client's, over the same connections. */
  readonly url?: string | undefined
  /** Gives the call up when it is aborted: it rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

export interface RpcStatistics {
  readonly opened: number
  readonly closed: number
  readonly reused: number
  readonly waits: number
  readonly retried: number
  readonly idle: number
  readonly connections: number
  readonly inFlight: number
}

/** The server answered a call with an error. */
export class RemoteError extends ThalwegError {
  private constructor()
  readonly name: "RemoteError"
  readonly code: "REMOTE_ERROR"
  /** Its number in JSON-RPC. */
  readonly number: number
  /** What else is said. */
  readonly data: unknown
  /** Of a server of ours: the fault's name. */
  readonly fault: FaultName | undefined
  /** Whether the same call may be made again. */
  readonly retry: Retry
}

/**
 * Calls services by JSON-RPC over connections that are kept. Results are what JSON says; integers beyond what a number holds are
 * `bigint`. A host that is no address is looked up here and now.
 */
export class RpcClient {
  constructor(url: string, options?: RpcOptions)
  call(method: string, params?: Params, options?: AskOptions): Promise<unknown>
  /** Has something done that has no answer. */
  notify(method: string, params?: Params, options?: AskOptions): Promise<void>
  /** Results in the order of the calls, a `RemoteError` where one is an error. */
  batch(calls: readonly Call[], options?: AskOptions): Promise<unknown[]>
  /** Asks whether the service was made from the schema with this hash, a `Schema`'s; rejects with `SCHEMA_MISMATCH` if not. */
  expectSchema(hash: string, options?: AskOptions): Promise<void>
  readonly statistics: RpcStatistics
  /** Closes every connection. */
  close(): void
  /** Closes it, for `using`. */
  [Symbol.dispose](): void
}

/** A service's schema: calls it over a socket without generated code. */
export class Schema {
  /** From the text of a schema; that of the state, unless it is given. */
  constructor(text?: string, name?: string)
  /** For `ConnectOptions.schema`. */
  readonly hash: string
  request(method: string, params?: Params): Bytes
  result(method: string, frame: Uint8Array): unknown
}
