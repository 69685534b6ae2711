// Calls everything that an echo server answers: `node client.mjs ENDPOINT`; or takes single steps: `node client.mjs ENDPOINT
// MILLISECONDS STEP...`. What is expected of it: conformance/matrix/README.md.

import { deepStrictEqual, ok, rejects, strictEqual } from "node:assert/strict"
import { readFileSync, readdirSync } from "node:fs"
import { randomUUID } from "node:crypto"
import { Client, ServiceError, SyncClient } from "thalweg/service"
import { EchoClient, EchoSyncClient } from "./generated/echo_client.js"
import * as types from "./generated/echo_types.js"
import { Writer } from "./generated/messagepack.js"
import { Refused } from "./generated/service.js"
import { run } from "./probe.mjs"

const ENDLESS = { first: 0, last: 0xffff_ffff }
const GOLDEN = new URL("../../../schemas/golden/", import.meta.url)
// Plain arrays, as what is decoded from the network has.
const frame = (file) => new Uint8Array(readFileSync(new URL(file, GOLDEN)))
const golden = (name) => types.decodeRequest(frame(`${name}.bin`))

let passed = 0
async function passes(outcome) {
  await outcome
  passed++
}

/** The golden requests that are answered with what they ask. */
const frames = readdirSync(GOLDEN).filter((name) => name.endsWith(".bin")).map(frame)
const requests = frames.filter(([first]) => first === 0x91).map(types.decodeRequest)
const REQUESTS = requests.filter(({ tag }) => !["EchoCount", "EchoFail", "EchoPut"].includes(tag))

const methodOf = (tag) => tag[4].toLowerCase() + tag.slice(5)

async function echoes(echo, { tag, value }) {
  deepStrictEqual(await echo[methodOf(tag)](value), value, tag)
}

async function forks(echo) {
  const fork = randomUUID()
  const { value } = golden("echo_put_request").value
  deepStrictEqual(await echo.peek({ fork }), { value: undefined })
  deepStrictEqual(await echo.put({ fork, value }), { version: 1n })
  deepStrictEqual(await echo.put({ fork, value }), { version: 2n })
  deepStrictEqual(await echo.peek({ fork }), { value })
  deepStrictEqual(await echo.peekCommitted({ fork }), { value })
}

async function refused(echo) {
  const { reason } = golden("echo_fail_request").value
  await rejects(async () => echo.fail({ reason }), (error) => error instanceof Refused && error.message === reason)
}

/** A request that no service knows: an error frame, or the fault. */
async function unknown(client) {
  const writer = new Writer()
  writer.request("EchoNoSuchThing")
  writer.fields(0, {})
  const frame = await client.call(writer.finish()).catch((error) => error)
  if (frame instanceof Error) strictEqual(frame.code, "UNKNOWN_COMMAND")
  else strictEqual(types.decodeResponse(frame).tag, "EchoErrorResponse")
}

async function stream(echo) {
  const items = echo.count(golden("echo_count_request").value, { credit: 16 })
  let expected = 1
  for (;;) {
    const { done, value } = await items.next()
    if (done) return deepStrictEqual([value, expected], [{ count: 1000 }, 1001])
    strictEqual(value.value, expected++)
  }
}

async function cancelled(echo) {
  const controller = new AbortController()
  const items = echo.count(ENDLESS, { signal: controller.signal, credit: 4 })
  deepStrictEqual(await items.next(), { done: false, value: { value: 0 } })
  controller.abort()
  await rejects(
    async () => {
      for await (const { value } of items) ok(value < 100)
    },
    { name: "AbortError" },
  )
  // Whoever stops early cancels too.
  for await (const { value } of echo.count(ENDLESS)) if (value === 3) break
}

async function overdue(client) {
  const frames = client.stream(types.encodeRequest({ tag: "EchoCount", value: ENDLESS }), { deadlineMs: 50, credit: 1 })
  await frames.next()
  // Whoever asks for one more lets more come; nobody asks before the deadline passed.
  await new Promise((resolve) => setTimeout(resolve, 100))
  await rejects(
    async () => {
      while (!(await frames.next()).done);
    },
    (error) => error instanceof ServiceError && error.code === "DEADLINE_EXCEEDED",
  )
}

async function main([endpoint, withinMs, ...steps]) {
  if (withinMs !== undefined) return run(endpoint, Number(withinMs), steps)
  const client = await Client.connect(endpoint, { schema: types.SCHEMA_HASH })
  const echo = new EchoClient(client)
  strictEqual(client.isShared, endpoint.endsWith(".shm"))
  for (const request of REQUESTS) await passes(echoes(echo, request))
  await passes(forks(echo))
  await Promise.all(Array.from({ length: 64 }, (_, n) => passes(echoes(echo, REQUESTS[n % REQUESTS.length]))))
  await passes(stream(echo))
  await passes(refused(echo))
  await passes(unknown(client))
  await passes(cancelled(echo))
  await passes(overdue(client))
  await passes(echoes(echo, REQUESTS[0]))
  client.close()

  const waiting = SyncClient.connect(endpoint, { schema: types.SCHEMA_HASH })
  const sync = new EchoSyncClient(waiting)
  for (const request of REQUESTS) await passes(echoes(sync, request))
  await passes(stream(sync))
  await passes(refused(sync))
  waiting.close()
  console.log(`ok ${passed}`)
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error.stack)
  process.exit(1)
})
