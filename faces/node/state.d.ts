// Sessions of the state, as a user of `thalweg/state` sees them.

import type { Bytes } from "./index.js"
import type { RpcOptions } from "./rpc.js"
import { ServiceError } from "./service.js"

/** Why the state refused. But for `UNKNOWN`, nothing was changed. */
export type StateCode =
  | "NO_FORK" | "MAIN_LINE" | "TOO_MANY_FORKS" | "BAD_PLACE" | "BAD_VIEW" | "BAD_KEY" | "NO_SNAPSHOT" | "CONFLICT" | "ROOT_MISMATCH"
  | "NO_STATE"
  | "SESSION_LOST" | "SESSION_EXPIRED" | "SESSIONS_FULL" | "BAD_LEASE" | "TOO_MUCH" | "NOT_TAKEN" | "UNKNOWN" | "FOREIGN"
  | "UNREADABLE"

/** The state did not do what it was asked; `code` is a `StateCode`, and `retry` says whether the same call may be made again. */
export class StateError extends ServiceError {
  private constructor()
  readonly name: "StateError"
  readonly code: StateCode
}

export interface OpenOptions {
  /** `main` unless said. */
  fork?: string | undefined
  /** How long the session stays without being used, 30,000 ms by default. */
  leaseMs?: number | undefined
  /** What the client is told that calls over HTTP: a token where the server has some. It has one connection, so that calls keep their order. */
  http?: RpcOptions | undefined
}

/** Writes that no other session sees until they are committed, and that can be taken back. */
export class Session {
  private constructor()
  /** Begins a session at an endpoint, `*.sock` or `*.shm`, or at a URL, `http://host:port/rpc/state`. */
  static open(at: string, options?: OpenOptions): Promise<Session>
  /** Comes back to a session by its token, on any way in. */
  static rejoin(at: string, token: string, options?: Pick<OpenOptions, "http">): Promise<Session>
  /** Names the session. Every holder of the token can use it. */
  readonly token: string
  readonly fork: string
  readonly leaseMs: number
  /** Whether a snapshot is pending, as far as this end knows. */
  readonly isPending: boolean
  /** Holds the fork as it is; one that is pending is committed first, unless nothing was written since. Resolves to where the fork ends. */
  snapshot(): Promise<number | bigint>
  /** Commits what was written since the snapshot, all or nothing: `CONFLICT` when others committed meanwhile. */
  commit(): Promise<number | bigint>
  /** Forgets what was written since the snapshot, and the snapshot: `NO_SNAPSHOT` without one. */
  rollback(): Promise<void>
  get(key: string): Promise<Bytes | null>
  put(key: string, value: Uint8Array): Promise<void>
  remove(key: string): Promise<void>
  /** Makes many changes, all or none of them. */
  write(changes: Iterable<readonly [key: string, value: Uint8Array | null]>): Promise<void>
  /** Entries in the order of their keys, and where to go on if there is more. */
  scan(options?: { start?: string | undefined; limit?: number | undefined }): Promise<{ entries: [string, Bytes][]; next: string | null }>
  /** A digest of all that this session sees. */
  root(): Promise<Bytes>
  /** Ends the session, and forgets what it did not commit; of one that was closed or left there is nothing to end. */
  close(): Promise<void>
  /** Closes it, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
  /** Hangs up. The session stays for its lease. */
  leave(): void
}
