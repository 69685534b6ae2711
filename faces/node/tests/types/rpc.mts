// JSON-RPC and sessions as a user would write them; what must not compile says so.

import { RemoteError, RpcClient, Schema } from "thalweg/rpc"
import { Session, StateError, type StateCode } from "thalweg/state"

const log = new RpcClient("http://127.0.0.1:4437/rpc/log", { idleMax: 1 })
const told: unknown = await log.call("Read", { offset: 2n ** 63n, data: Uint8Array.of(1) }, { idempotent: true, deadlineMs: 5 })
const all: unknown[] = await log.batch([["Read", ["a"]], ["Forks"]])
if (all[0] instanceof RemoteError && all[0].fault === "OVERLOADED") console.log(all[0].retry, told)
interface Note { name: string; closed: boolean }
const note: Note = { name: "notes", closed: false }
for (const params of [note, new Map([["name", "notes"]]), ["notes"] as const, null]) await log.call("Create", params)
// @ts-expect-error a number is no parameters
await log.call("Read", 7)
await log.expectSchema(new Schema().hash, { deadlineMs: 5 })
const left: { token?: string; limit?: number } = {}
new RpcClient("http://127.0.0.1:4437/rpc/log", { token: left.token, idleMax: left.limit }).close()
console.log(log.statistics.reused, new Schema().hash)

const session = await Session.open("data/state.shm", { leaseMs: 5 })
await session.write([["a", Uint8Array.of(1)], ["b", null]])
// @ts-expect-error text is no bytes
await session.put("a", "1")
const { entries, next } = await session.scan({ start: left.token, limit: left.limit })
console.log(entries[0]?.[1].length, next)
try {
  await session.commit()
} catch (error) {
  const lost: StateCode = "SESSION_LOST"
  if (error instanceof StateError && error.code === lost) await session.close()
}
