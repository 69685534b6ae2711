// Typed services, as a user of `thalweg/service` sees them. Frames are what generated code makes and reads.

import { type Bytes, ThalwegError } from "./index.js"
import type { FaultName, Faults, Retry } from "./lib/faults.js"
import type { StateCode } from "./state.js"

export type { FaultName, FaultRow, Faults, Retry } from "./lib/faults.js"

/** Every fault there is: its number, whether a retry may help, and what it says. */
export const FAULTS: Faults

/** The name of a fault; `FAULT_` and its number where a newer version knows it. */
export type ServiceCode = FaultName | `FAULT_${number}`

/** Why a call, a connection or a server did not do what was asked. */
export class ServiceError extends ThalwegError {
  protected constructor()
  readonly name: "ServiceError" | "StateError"
  /** Of a `StateError`, which is one of these, a `StateCode`. */
  readonly code: ServiceCode | StateCode
  /** Whether the same call may be made again: never (it would go wrong again), safe (it was not carried out), unknown. */
  readonly retry: Retry
  /** The fault's number. */
  readonly number: number
}

/** What a blocking call may be given. */
export interface SyncCallOptions {
  /** The deadline of the call, in milliseconds. */
  readonly deadlineMs?: number | undefined
  /** Of a stream: how many items may come before they are taken; as many as the server says unless said otherwise. */
  readonly credit?: number | undefined
}

/** What one call may be given. */
export interface CallOptions extends SyncCallOptions {
  /** Gives the call up when it is aborted: it rejects with the signal's reason. Items of a stream that were not taken are dropped. */
  readonly signal?: AbortSignal | undefined
}

/** How a client is connected that blocks its thread. */
export interface SyncConnectOptions {
  /** `SCHEMA_HASH` of the generated types: a server with another schema refuses. Any schema fits without it. */
  schema?: string | undefined
  /** How long to go on trying to connect, 5,000 ms unless said otherwise. */
  connectWithinMs?: number | undefined
  /** The deadline of a call that is given none, in milliseconds. */
  deadlineMs?: number | undefined
  /** Calls in flight at most, 1,024 unless said otherwise; further ones wait in this process. */
  inFlightMax?: number | undefined
  /** Bytes of requests that may wait in this process; a call beyond them fails with `OVERLOADED`. 64 MiB unless said otherwise. */
  unsentBytesMax?: number | undefined
  /** The longest frame to send or to take, 16 MiB unless said otherwise. */
  frameBytesMax?: number | undefined
  /** Ask for shared memory on a `.sock` too, and do without where there is none. A `.shm` is never anything else. */
  shared?: boolean | undefined
  /** Bytes of each ring to ask for. */
  ringBytes?: number | undefined
  /** May look for a moment for an answer in shared memory before sleeping. */
  spin?: boolean | undefined
  /** Speak plain frames: answers in order, neither cancellation nor credit. */
  plain?: boolean | undefined
  /** Only a server that this process's user runs, or root, is spoken to; as is unless said otherwise. */
  sameUserOnly?: boolean | undefined
  /** Connect anew with the next call after the connection ended. */
  reconnect?: boolean | undefined
}

/** How a client is connected. */
export interface ConnectOptions extends SyncConnectOptions {
  /** Gives up connecting when it is aborted: that rejects with the signal's reason. It means nothing to a client that is connected. */
  signal?: AbortSignal | undefined
}

/** A client on the event loop: the transport under a generated client. */
export class Client {
  private constructor()
  /** Connects to an endpoint, `*.sock`, `*.shm` or `-` (standard input and output); resolves once the server said welcome. */
  static connect(endpoint: string, options?: ConnectOptions): Promise<Client>
  /** Sends a request; resolves to the frame that answers it. */
  call(request: Uint8Array, options?: CallOptions): Promise<Bytes>
  /** Sends a request that a stream answers, once it is iterated; yields its frames. */
  stream(request: Uint8Array, options?: CallOptions): AsyncIterableIterator<Bytes>
  /** Whether frames go through shared memory. */
  readonly isShared: boolean
  /** Keeps the process alive while calls are under way, as it does unless told otherwise. */
  ref(): this
  /** Lets the process end although calls are under way. */
  unref(): this
  /** Hangs up. Calls under way fail with `CLOSED`. */
  close(): void
  /** Closes it, for `using`. */
  [Symbol.dispose](): void
}

/** A client that blocks its thread until the answer is there: for scripts and worker threads. Its thread can be terminated all the while. */
export class SyncClient {
  private constructor()
  /** Connects to an endpoint, `*.sock`, `*.shm` or `-` (standard input and output); returns once the server said welcome. */
  static connect(endpoint: string, options?: SyncConnectOptions): SyncClient
  /** Sends a request and returns the frame that answers it. */
  call(request: Uint8Array, options?: SyncCallOptions): Bytes
  /** Sends a request that a stream answers, once it is iterated; yields its frames. */
  stream(request: Uint8Array, options?: SyncCallOptions): IterableIterator<Bytes>
  /** Whether frames go through shared memory. */
  readonly isShared: boolean
  /** Hangs up. */
  close(): void
  /** Closes it, for `using`. */
  [Symbol.dispose](): void
}

/** Where the frames that answer one request go. */
export interface Reply {
  /** The client that asked, by a number that no other client of this server has. */
  readonly client: bigint
  /** Aborted once the answer is not awaited any more: the call was cancelled, its deadline passed, its client is gone. */
  readonly signal: AbortSignal
  /** Sends one item of a stream; resolves when another may be made, to `false` when the client wants no more. */
  item(frame: Uint8Array): Promise<boolean>
  /** Sends the frame that ends the call. */
  end(frame: Uint8Array): void
  /** Ends the call with a fault, in words for people. */
  fail(code: FaultName, message?: string): void
}

/** What a server serves: what the generated `service(handler)` makes. */
export interface Service {
  readonly schema?: string | undefined
  readonly errorTag?: string | undefined
  dispatch(frame: Bytes, reply: Reply): Promise<void> | void
}

export interface ListenOptions {
  /** `SCHEMA_HASH` of the generated types; a generated service brings it. */
  schema?: string | undefined
  /** The tag of the service's error; a generated service brings it. */
  errorTag?: string | undefined
  /** The longest request, 16 MiB unless said otherwise. */
  frameBytesMax?: number | undefined
  /** The largest ring a client may ask for, 4 MiB unless said otherwise. */
  ringBytesMax?: number | undefined
  /** Clients at once. */
  clientsMax?: number | undefined
  /** Calls of one connection under way; a connection at this bound is not read from. */
  inFlightMax?: number | undefined
  /** Bytes of their requests, 64 MiB unless said otherwise; a connection at this bound is not read from. */
  inFlightBytesMax?: number | undefined
  /** Bytes of answers that one connection may leave lying before it is no longer read from. */
  unsentBytesMax?: number | undefined
  /** Items that a new stream may send before its client asks for more. */
  streamCredit?: number | undefined
  /** May look for a moment for more work before sleeping. */
  spin?: boolean | undefined
  /** How long clients may take, once the server closes, to take their last answers; 5,000 ms unless said otherwise. */
  drainGraceMs?: number | undefined
  /** How long a client that connected may take to say what it speaks; 10,000 ms unless said otherwise. One that has said only
   * a part of it by then is disconnected; one that has said nothing gives its place to another that waits. */
  helloWithinMs?: number | undefined
  /** Only this process's user may connect, unless `false`. */
  sameUserOnly?: boolean | undefined
}

export interface ServerStats {
  /** Clients now, and how many of them through shared memory. */
  readonly clients: number
  readonly sharedClients: number
  /** Calls under way. */
  readonly inFlight: number
  /** Bytes of their requests, as far as their clients are connected. */
  readonly inFlightBytes: number
  /** Since it began. */
  readonly requests: number
  readonly answers: number
}

/** A server on the event loop. */
export class Server {
  private constructor()
  /** Listens at an endpoint, or at several. */
  static listen(
    endpoint: string | readonly string[],
    service: Service | Service["dispatch"],
    options?: ListenOptions,
  ): Promise<Server>
  /** Takes nothing new, lets what is under way be answered, and ends. Rejects with what ended the server before, if something did. */
  close(): Promise<void>
  /** Closes it, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
  stats(): ServerStats
  /** Keeps the process alive while it listens, as it does unless told otherwise. */
  ref(): this
  /** Lets the process end although it listens. */
  unref(): this
}

/**
 * It cannot be started; another server has its endpoint; it ended; it did not answer in time and was ended; the service was
 * closed.
 */
export type SpawnCode = "NO_PROGRAM" | "ADDRESS_IN_USE" | "DIED" | "WEDGED" | "CLOSED"

/** Why a program that serves is not there. */
export class SpawnError extends ThalwegError {
  private constructor()
  readonly name: "SpawnError"
  readonly code: SpawnCode
  /** Whether starting it again may help. */
  readonly retry: Retry
  /** Of `DIED`: its exit code; null when a signal ended it, or when nobody knows how it ended, as this process ignores `SIGCHLD` or
   * waits elsewhere for all its children. */
  readonly exitCode?: number | null
  /** Of `DIED`: the signal that ended it; null when none did, or nobody knows. */
  readonly signal?: SignalName | null
  /** Of `DIED`: the last lines that it wrote to its log file. */
  readonly logTail?: string
}

/** A signal's name; `SIG` and its number where it has none. */
export type SignalName = NodeJS.Signals | `SIG${number}`

export interface SpawnOptions {
  /** Where the program listens: a path, `*.sock` or `*.shm`. */
  endpoint: string
  /** How long it may take until it answers there, 10,000 ms unless said otherwise. */
  readyWithinMs?: number | undefined
  /** How long it may take to end after TERM before it is killed, 5,000 ms unless said otherwise. */
  stopWithinMs?: number | undefined
  /** Takes what it prints, whose end is put into errors; else that goes where this process's output goes. */
  logFile?: string | undefined
  cwd?: string | undefined
  /** Variables it gets beside those of this process. */
  env?: Record<string, string> | undefined
  /** Start it again when it dies: `limit` times in a row at most, with pauses that double from `firstMs` to `mostMs`. */
  respawn?: boolean | { limit?: number | undefined; firstMs?: number | undefined; mostMs?: number | undefined } | undefined
  /** Told when it died and is not started again. */
  onGone?: ((error: SpawnError) => void) | undefined
  /** Ends it when it is aborted before it answers: `spawn` rejects with the signal's reason then. Later it means nothing. */
  signal?: AbortSignal | undefined
}

/** A program that serves, started by this thread and killed with it. */
export interface Spawned {
  readonly endpoint: string
  readonly pid: number | undefined
  /** How often it was started again. */
  readonly respawns: number
  /** Resolves once it answers, anew after it died; rejects when it is given up. */
  readonly ready: Promise<void>
  /** Ends it: TERM, and KILL when it does not go. Resolves to how it ended, with neither a code nor a signal when nobody knows. */
  close(): Promise<{ code: number | null; signal: SignalName | null }>
  /** Closes it, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Starts a program that serves an endpoint; resolves once it answers there. */
export function spawn(program: string, args: readonly string[], options: SpawnOptions): Promise<Spawned>
