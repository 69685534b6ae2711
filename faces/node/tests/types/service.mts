// Services as a user would write them; what must not compile says so.

import {
  Client, FAULTS, Server, ServiceError, SpawnError, SyncClient, spawn, type FaultName, type Reply, type Retry, type Service,
} from "thalweg/service"

const SCHEMA_HASH: string = "00".repeat(32)
const client = await Client.connect("run/echo.shm", { schema: SCHEMA_HASH, reconnect: true, connectWithinMs: 100 })
const { signal } = new AbortController()
const answer: Uint8Array = await client.call(Uint8Array.of(1), { signal, deadlineMs: 50 })
for await (const frame of client.stream(answer, { credit: 16 })) console.log(frame.length, new Blob([frame]).size)
await fetch("http://127.0.0.1/", { method: "POST", body: await client.call(answer) })
client.ref().unref().close()
// @ts-expect-error a client is connected, never made
new Client()
// @ts-expect-error text is no frame
await client.call("text")

await Client.connect("run/echo.sock", { signal, connectWithinMs: 60_000 })
// @ts-expect-error nothing can abort a client that waits for its connection
SyncClient.connect("run/echo.sock", { signal })
const waiting = SyncClient.connect("run/echo.sock")
for (const frame of waiting.stream(waiting.call(answer, { deadlineMs: 5 }))) console.log(frame.length, waiting.isShared)
// @ts-expect-error nothing can abort a call that waits
waiting.call(answer, { signal })

const service: Service = {
  schema: SCHEMA_HASH,
  async dispatch(frame: Uint8Array, reply: Reply) {
    if (!(await reply.item(frame))) return
    reply.signal.throwIfAborted()
    if (reply.client === 7n) reply.fail("OVERLOADED", "later")
    else reply.end(frame)
    // @ts-expect-error there is no such fault
    reply.fail("TOO_TIRED")
  },
}
const server = await Server.listen(["run/echo.sock", "run/echo.shm"], service, { drainGraceMs: 100 })
await Server.listen("run/bare.sock", (frame, reply) => reply.end(frame))
const { clients, inFlight }: { clients: number; inFlight: number } = server.stats()
await server.close()

/** Whoever hands on what may be left out hands it on. */
export async function handedOn(given: { schema?: string; deadlineMs?: number; respawn?: boolean; onGone?: (error: SpawnError) => void }) {
  const { schema, deadlineMs, respawn, onGone } = given
  await Client.connect("run/echo.sock", { schema, deadlineMs })
  await Server.listen("run/echo.sock", { schema, dispatch: service.dispatch }, { schema, drainGraceMs: deadlineMs })
  await spawn("echo-server", [], { endpoint: "run/x.sock", respawn, onGone, readyWithinMs: deadlineMs, signal: undefined })
}

try {
  const spawned = await spawn("echo-server", ["run/x.sock"], { endpoint: "run/x.sock", respawn: { limit: 3 } })
  await spawned.ready
  const { code }: { code: number | null } = await spawned.close()
  console.log(spawned.pid, code, clients + inFlight)
} catch (error) {
  if (error instanceof ServiceError) {
    const retry: Retry = error.retry
    const name: FaultName = "NO_SERVER"
    console.log(error.code === name, error.code === "CONFLICT", retry, error.number, FAULTS[name].says)
    // @ts-expect-error no fault, nor refusal of the state, has this name
    console.log(error.code === "NO_SERVERS")
  }
  if (error instanceof SpawnError && error.code === "DIED") console.log(error.exitCode, error.signal === "SIGKILL", error.logTail)
}
