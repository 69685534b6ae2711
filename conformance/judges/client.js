// The official npm client as a judge: its ways to read, its producer, and its errors, against our server.

import assert from "node:assert/strict"
import { DurableStream, DurableStreamError, FetchError, IdempotentProducer, StaleEpochError, StreamClosedError,
  stream } from "@durable-streams/client"
import * as harness from "./harness.js"

const { check, sleep, within } = harness
const JSON_TYPE = "application/json"
const url = (name) => `${harness.base}/v1/stream/client-${name}`
const count = (n, from = 0) => Array.from({ length: n }, (_, i) => from + i)

const create = (name, contentType = JSON_TYPE, more = {}) =>
  DurableStream.create({ url: url(name), contentType, ...more })

/** Goes on trying while there is no server, and where it came back; what the server says, it says once. */
async function patientFetch(target, options) {
  for (;;) {
    try {
      return await fetch(String(target).replace(/^http:..[^/]+/, harness.base), options)
    } catch (error) {
      if (!(error instanceof TypeError)) throw error
      await sleep(30)
    }
  }
}

/** Everything in a stream, answer by answer. */
async function readJson(name, offset = "-1") {
  const items = []
  for (;;) {
    const response = await stream({ url: url(name), offset, live: false })
    items.push(...(await response.json()))
    if (response.upToDate) return items
    offset = response.offset
  }
}

/** Appends one by one, slowly enough that who follows must wait. */
async function appendSlowly(handle, items) {
  for (const item of items) {
    await sleep(15)
    await handle.append(JSON.stringify(item))
  }
}

/** Follows until `total` items came; a response that breaks is followed by another from the last batch's offset. */
async function follow(name, live, total) {
  const seen = []
  let offset = "-1"
  while (seen.length < total) {
    const response = await stream({ url: url(name), offset, live, json: true, fetch: patientFetch })
    await new Promise((resolve) => {
      const cancel = response.subscribeJson(async (batch) => {
        seen.push(...batch.items)
        offset = batch.offset
        if (seen.length >= total) resolve(cancel())
      })
      response.closed.then(resolve, resolve)
    })
  }
  return seen
}

/** Whether the client refused with one of its errors and the server's status. Release 0.2.7 throws a FetchError
 * for most of what its documentation calls a DurableStreamError; either will do. */
const refused = (status) => (error) =>
  (error instanceof DurableStreamError || error instanceof FetchError) && error.status === status

/** Where a closed stream ends, as the error of a late append tells it. */
const endOf = (error) => error instanceof StreamClosedError ? error.finalOffset
  : error.headers["stream-closed"] === "true" && error.headers["stream-next-offset"]

/** A producer whose errors are kept for the test to ask for. */
function producer(handle, id, options = {}) {
  const errors = []
  return { errors, it: new IdempotentProducer(handle, id, { onError: (error) => errors.push(error), ...options }) }
}

for (const live of [false, true, "long-poll", "sse"]) {
  await check(`read until up to date, live: ${live}`, async () => {
    const name = `read-${live}`
    const handle = await create(name)
    for (const n of count(10)) await handle.append(JSON.stringify({ n }))
    const response = await stream({ url: url(name), offset: "-1", live })
    assert.deepEqual(await response.json(), count(10).map((n) => ({ n })))
    assert.equal(response.offset, (await handle.head()).offset)
  })
}

for (const live of [true, "long-poll", "sse"]) {
  await check(`follow, live: ${live}`, async () => {
    const handle = await create(`follow-${live}`)
    await handle.append("0")
    const [seen] = await Promise.all([follow(`follow-${live}`, live, 130), appendSlowly(handle, count(129, 1))])
    assert.deepEqual(seen, count(130))
  })
}

for (const live of [false, "long-poll", "sse"]) {
  await check(`a closed stream ends the reading, live: ${live}`, async () => {
    const name = `end-${live}`
    const handle = await create(name, "text/plain")
    await handle.append("first ")
    const { finalOffset } = await handle.close({ body: "last" })
    const response = await stream({ url: url(name), offset: "-1", live })
    let text = ""
    for await (const chunk of response.textStream()) text += chunk
    assert.equal(text, "first last")
    assert.deepEqual([response.streamClosed, response.offset], [true, finalOffset])
  })
}

for (const live of [false, "long-poll", "sse"]) {
  await check(`bytes come back as they went, live: ${live}`, async () => {
    const name = `bytes-${live}`
    const handle = await create(name, "application/octet-stream")
    const bytes = Uint8Array.from(count(100_000), (n) => (n * 31) ^ (n >> 7))
    await handle.append(bytes.subarray(0, 7))
    await handle.append(bytes.subarray(7))
    await handle.close()
    const chunks = []
    const response = await stream({ url: url(name), offset: "-1", live })
    for await (const chunk of response.bodyStream()) chunks.push(chunk)
    assert.ok(Buffer.concat(chunks).equals(Buffer.from(bytes)))
  })
}

await check("closing while somebody follows", async () => {
  const handle = await create("closing")
  const response = await stream({ url: url("closing"), offset: "-1", live: "sse" })
  const read = (async () => {
    const items = []
    for await (const item of response.jsonStream()) items.push(item)
    return items
  })()
  await appendSlowly(handle, [1, 2, 3])
  await handle.close({ body: "4" })
  assert.deepEqual(await read, [1, 2, 3, 4])
})

await check("an aborted reader stops", async () => {
  await create("abort")
  const abort = new AbortController()
  const response = await stream({ url: url("abort"), offset: "-1", live: "long-poll", signal: abort.signal })
  const read = (async () => {
    for await (const item of response.jsonStream()) throw new Error(`nothing was written, and ${item} came`)
  })()
  await sleep(50)
  abort.abort()
  await within(30_000, read.catch((error) => assert.match(error.name, /Abort/)), "the reader")
})

await check("a stream of standard chunks is appended", async () => {
  const handle = await create("writable", "text/plain")
  const source = async function* () {
    for (const n of count(50)) yield `line ${n}\n`
  }
  await handle.appendStream(source())
  const response = await stream({ url: url("writable"), live: false })
  assert.equal(await response.text(), count(50).map((n) => `line ${n}\n`).join(""))
})

await check("create, head, delete, and what is not there", async () => {
  const handle = await create("life", "text/plain", { ttlSeconds: 3600, body: "text" })
  await create("life", "text/plain", { ttlSeconds: 3600 })
  await assert.rejects(create("life"), refused(409))
  const head = await handle.head()
  assert.deepEqual([head.exists, head.contentType, head.streamClosed, head.cacheControl],
    [true, "text/plain", false, "no-store"])
  await handle.delete()
  assert.deepEqual(await handle.head(), { exists: false })
  await assert.rejects(handle.delete(), refused(404))
  await assert.rejects(handle.append("x"), refused(404))
  for (const live of [false, "long-poll", "sse"]) {
    await assert.rejects(stream({ url: url("life"), live, offset: "-1" }), refused(404))
  }
})

await check("refusals have their error and write nothing", async () => {
  const handle = await create("refused")
  await handle.append("1", { seq: "b" })
  await assert.rejects(handle.append("2", { seq: "a" }), refused(409))
  await assert.rejects(handle.append("{ no JSON"), refused(400))
  await assert.rejects(stream({ url: url("refused"), live: false, offset: "no such offset" }), refused(400))
  assert.deepEqual(await readJson("refused"), [1])
})

await check("a closed stream takes nothing more", async () => {
  const handle = await create("closed")
  await handle.append("1")
  const { finalOffset } = await handle.close()
  assert.deepEqual(await handle.close(), { finalOffset })
  for (const call of [() => handle.append("2"), () => handle.close({ body: "2" })]) {
    await assert.rejects(call, (e) => refused(409)(e) && endOf(e) === finalOffset)
  }
  assert.equal((await handle.head()).streamClosed, true)
  assert.deepEqual(await readJson("closed"), [1])
})

await check("a producer's batches keep their order", async () => {
  const { it, errors } = producer(await create("producer"), "one", { maxBatchBytes: 100, maxInFlight: 5 })
  for (const n of count(1_000)) it.append(JSON.stringify({ n }))
  await it.flush()
  assert.deepEqual(errors, [])
  assert.deepEqual(await readJson("producer"), count(1_000).map((n) => ({ n })))
  assert.equal(it.lastSuccessfulOffset, (await DurableStream.head({ url: url("producer") })).offset)
})

await check("a producer sends twice and writes once", async () => {
  const handle = await create("twice")
  const twice = async (...request) => (await (await fetch(...request)).arrayBuffer(), fetch(...request))
  const { it, errors } = producer(handle, "echo", { fetch: twice })
  for (const n of count(20)) {
    it.append(String(n))
    await it.flush()
  }
  await it.close("20")
  assert.deepEqual([errors, await readJson("twice")], [[], count(21)])
})

await check("a producer of an older epoch is fenced, unless it claims the next", async () => {
  const handle = await create("epochs")
  const newer = producer(handle, "same", { epoch: 5 })
  newer.it.append('"newer"')
  await newer.it.flush()
  const zombie = producer(handle, "same", { epoch: 4 })
  zombie.it.append('"zombie"')
  await zombie.it.flush().catch(() => {})
  assert.ok(zombie.errors[0] instanceof StaleEpochError, String(zombie.errors[0]))
  assert.equal(zombie.errors[0].currentEpoch, 5)
  const claims = producer(handle, "same", { autoClaim: true })
  claims.it.append('"claimed"')
  await claims.it.flush()
  assert.deepEqual([claims.errors, claims.it.epoch], [[], 6])
  newer.it.append('"fenced"')
  await newer.it.flush().catch(() => {})
  assert.ok(newer.errors[0] instanceof StaleEpochError)
  assert.deepEqual(await readJson("epochs"), ["newer", "claimed"])
})

await check("a producer closes once, with a last word", async () => {
  const handle = await create("last-word", "text/plain")
  const { it, errors } = producer(handle, "writer")
  it.append("words, ")
  const first = await it.close("the last")
  assert.deepEqual([await it.close("the last"), errors], [first, []])
  const response = await stream({ url: url("last-word"), live: false })
  assert.deepEqual([await response.text(), response.streamClosed, response.offset],
    ["words, the last", true, first.finalOffset])
})

await check("followers and a producer live through a kill", async () => {
  const total = 400
  const { it, errors } = producer(await create("kill"), "survivor", { maxInFlight: 3, fetch: patientFetch })
  const tails = ["sse", "long-poll"].map((live) => follow("kill", live, total))
  const writing = (async () => {
    for (const n of count(total)) {
      it.append(String(n))
      await sleep(3)
    }
    await it.flush()
  })()
  await sleep(400)
  await harness.killServer()
  await sleep(100)
  await harness.startServer()
  await writing
  for (const tail of tails) assert.deepEqual(await tail, count(total))
  assert.deepEqual([errors, await readJson("kill")], [[], count(total)])
})

await check("what was acknowledged, closed and claimed outlives the server", async () => {
  const saved = (await readOnce("kill")).offset
  const handle = new DurableStream({ url: url("kill"), contentType: JSON_TYPE })
  await handle.append('"more"')
  await harness.killServer()
  await harness.startServer()
  assert.deepEqual(await readJson("kill", saved), ["more"])
  assert.equal((await DurableStream.head({ url: url("closed") })).streamClosed, true)
  const zombie = producer(new DurableStream({ url: url("epochs"), contentType: JSON_TYPE }), "same", { epoch: 5 })
  zombie.it.append('"zombie"')
  await zombie.it.flush().catch(() => {})
  assert.equal(zombie.errors[0]?.currentEpoch, 6)
})

async function readOnce(name) {
  const response = await stream({ url: url(name), live: false })
  await response.json()
  return response
}

harness.done()
