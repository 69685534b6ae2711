// Sessions of the state as a user would write them; what must not compile says so.

import { ThalwegError } from "thalweg"
import { RemoteError, RpcClient } from "thalweg/rpc"
import { Client, Server, ServiceError, SpawnError, SyncClient, type Spawned } from "thalweg/service"
import { Session, StateError, type OpenOptions, type StateCode } from "thalweg/state"

const options: OpenOptions = { fork: "main", leaseMs: 5_000, http: { token: "secret" } }
const session = await Session.open("http://127.0.0.1:4437/rpc/state", options)
const again = await Session.rejoin("data/state.sock", session.token, { http: {} })
// @ts-expect-error a session is opened, never made
new Session()
// @ts-expect-error one that is rejoined has its lease
await Session.rejoin("data/state.sock", session.token, { leaseMs: 5 })
const offset: number | bigint = await session.snapshot()
const held: Uint8Array | null = await session.get("ann")
console.log(offset, held?.length, again.isPending)
session.leave()

/** Every error of the package is a ThalwegError, and narrows to what it is. */
export function said(error: unknown): string {
  if (!(error instanceof ThalwegError)) return "not ours"
  if (error instanceof StateError) {
    const code: StateCode = error.code
    return `${code} ${error.retry} ${error.number}`
  }
  if (error instanceof ServiceError) return `${error.code} ${error.retry}`
  if (error instanceof RemoteError) return `${error.fault} ${error.number}`
  if (error instanceof SpawnError) return `${error.logTail}`
  return error.code
}

/** What can be disposed of. */
export function disposed(sync: Client | SyncClient | RpcClient, waiting: Server | Spawned | Session): Promise<void> {
  sync[Symbol.dispose]()
  return waiting[Symbol.asyncDispose]()
}

// @ts-expect-error errors are caught, never made
new StateError()
// @ts-expect-error errors are caught, never made
new RemoteError(1, "x")
// @ts-expect-error errors are caught, never made
new ServiceError()
// @ts-expect-error errors are caught, never made
new ThalwegError()
