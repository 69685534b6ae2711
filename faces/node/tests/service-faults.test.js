"use strict"

// What can go wrong between two ends, each with its typed error, and whether a retry may help.

const assert = require("node:assert/strict")
const net = require("node:net")
const { writeFileSync } = require("node:fs")
const test = require("node:test")
const {
  Client, FAULTS, KIND, ServiceError, after, bytes, connect, echo, endpoint, failure, framed, peer, serve, text, welcome,
} = require("./service-helpers.js")

const SCHEMA = "ab".repeat(32)

test("every fault has a row", () => {
  const error = new ServiceError("OVERLOADED")
  assert.deepEqual([error.retry, error.number, error.message], ["safe", 13, FAULTS.OVERLOADED.says])
})

test("a fault that there is not, and words that are none, are no answer", async (context) => {
  const path = endpoint(context)
  const told = []
  await serve(context, path, (frame, reply) => {
    for (const words of [["toString", "x"], ["NOTHING", "x"], [undefined, "x"], ["REFUSED", 42], ["REFUSED", null]]) {
      try {
        reply.fail(...words)
      } catch (error) {
        told.push(error.code)
      }
    }
    reply.end(frame)
  })
  const client = await connect(context, path)
  assert.equal(text(await client.call(bytes("x"))), "x")
  assert.deepEqual(told, Array(5).fill("BAD_ARGUMENT"))
})

test("a handler that gives no answer is said to once", async (context) => {
  const path = endpoint(context)
  await serve(context, path, () => {})
  const error = await failure((await connect(context, path)).call(bytes("x")))
  assert.deepEqual([error.code, error.message], ["ABANDONED", FAULTS.ABANDONED.says])
})

test("nobody listens", async (context) => {
  const error = await failure(Client.connect(endpoint(context), { connectWithinMs: 30 }))
  assert.ok(error instanceof ServiceError)
  assert.deepEqual([error.code, error.retry, error.number], ["NO_SERVER", "safe", 18])
})

test("a path that a dead server left behind", async (context) => {
  const path = endpoint(context)
  writeFileSync(path, "")
  const error = await failure(Client.connect(path, { connectWithinMs: 30 }))
  assert.equal(error.code, "NO_SERVER")
})

test("a server that says nothing", async (context) => {
  const path = endpoint(context)
  const server = net.createServer((socket) => after(context, () => socket.destroy()))
  await new Promise((resolve) => server.listen(path, resolve))
  after(context, () => server.close())
  const error = await failure(Client.connect(path, { connectWithinMs: 50 }))
  assert.deepEqual([error.code, error.retry], ["CONNECT_TIMEOUT", "safe"])
})

test("another schema is refused at both ends' word", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo, { schema: SCHEMA })
  const error = await failure(Client.connect(path, { schema: "cd".repeat(32) }))
  assert.deepEqual([error.code, error.retry], ["SCHEMA_MISMATCH", "never"])
  for (const schema of [SCHEMA, undefined]) assert.ok(await connect(context, path, { schema }))
})

test("a schema that is left out, null included, is the service's own", async (context) => {
  for (const options of [undefined, {}, { schema: undefined }, { schema: null, errorTag: null, drainGraceMs: null }]) {
    const path = endpoint(context)
    await serve(context, path, { schema: SCHEMA, errorTag: "t", dispatch: echo }, options)
    assert.equal((await failure(Client.connect(path, { schema: "cd".repeat(32) }))).code, "SCHEMA_MISMATCH")
  }
  const path = endpoint(context)
  await serve(context, path, { schema: SCHEMA, dispatch: echo }, { schema: "cd".repeat(32) })
  assert.equal((await failure(Client.connect(path, { schema: SCHEMA }))).code, "SCHEMA_MISMATCH")
})

test("another version is refused", async (context) => {
  const path = endpoint(context)
  await peer(context, path, () => {}, welcome({ fault: FAULTS.VERSION_MISMATCH.number, version: 9 }))
  assert.equal((await failure(Client.connect(path))).code, "VERSION_MISMATCH")
})

test("an endpoint of shared memory takes no plain frames", async (context) => {
  const path = endpoint(context, "shm")
  await serve(context, path, echo)
  const error = await failure(Client.connect(path, { plain: true }).then((client) => client.call(bytes("x"))))
  assert.ok(["BAD_ARGUMENT", "NO_SHARED_MEMORY", "DISCONNECTED"].includes(error.code), error.code)
})

test("an endpoint that is taken is not stolen", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const error = await failure(serve(context, path, echo))
  assert.deepEqual([error.code, error.retry], ["ADDRESS_IN_USE", "never"])
})

test("a connection that ends in the middle of a call", async (context) => {
  const path = endpoint(context)
  await peer(context, path, (_, socket) => socket.destroy())
  const client = await connect(context, path)
  const calls = await Promise.all([failure(client.call(bytes("a"))), failure(client.call(bytes("b")))])
  for (const error of calls) assert.deepEqual([error.code, error.retry], ["DISCONNECTED", "unknown"])
  const later = await failure(client.call(bytes("c")))
  assert.deepEqual([later.code, later.retry], ["NOT_SENT", "safe"])
})

test("a connection that ends in the middle of a frame", async (context) => {
  const path = endpoint(context)
  await peer(context, path, ({ id }, socket) => socket.end(framed(KIND.END, id, bytes("half"), { length: 100 })))
  const client = await connect(context, path)
  assert.equal((await failure(client.call(bytes("a")))).code, "DISCONNECTED")
})

test("bytes that are no frame end the connection", async (context) => {
  const path = endpoint(context)
  await peer(context, path, ({ id }, socket) => socket.write(framed(99, id, bytes("x"))))
  const client = await connect(context, path)
  const error = await failure(client.call(bytes("a")))
  assert.ok(["BAD_FRAME", "DISCONNECTED"].includes(error.code), error.code)
})

test("an answer longer than is allowed fails its call and no other", async (context) => {
  const path = endpoint(context)
  await serve(context, path, (frame, reply) => reply.end(Buffer.alloc(frame[0] === 1 ? 5000 : 5)))
  const client = await connect(context, path, { frameBytesMax: 1000 })
  assert.equal((await failure(client.call(Uint8Array.of(1)))).code, "FRAME_TOO_LARGE")
  assert.equal((await client.call(Uint8Array.of(0))).length, 5)
  assert.equal((await failure(client.call(Buffer.alloc(2000)))).code, "FRAME_TOO_LARGE")
  assert.equal((await client.call(Uint8Array.of(0))).length, 5)
})

// No area holds as much, so that nothing may be copied before it is refused.
test("a frame that is longer than any can be is refused, and the next one goes", async (context) => {
  const path = endpoint(context)
  const huge = new Uint8Array(2 ** 31)
  await serve(context, path, async (frame, reply) => {
    if (frame[0] === 1) return reply.end(huge)
    if (frame[0] === 2) assert.equal(await reply.item(huge), false)
    reply.end(frame)
  })
  const client = await connect(context, path, { frameBytesMax: 1 << 30 })
  const refused = await failure(client.call(huge))
  assert.equal(refused.code, "FRAME_TOO_LARGE")
  assert.match(refused.message, /a request of 2147483648 bytes, 1073741824 are allowed/)
  assert.equal(client.inFlight, 0)
  assert.equal((await failure(client.stream(huge).next())).code, "FRAME_TOO_LARGE")
  assert.equal((await failure(client.call(Uint8Array.of(1)))).code, "FRAME_TOO_LARGE")
  assert.equal((await failure(client.stream(Uint8Array.of(2)).next())).code, "FRAME_TOO_LARGE")
  assert.deepEqual([...(await client.call(Uint8Array.of(0)))], [0])
})

test("a request longer than the server allows is refused and the connection goes on", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo, { frameBytesMax: 1000 })
  const client = await connect(context, path)
  assert.equal((await failure(client.call(Buffer.alloc(100_000)))).code, "FRAME_TOO_LARGE")
  assert.equal(text(await client.call(bytes("small"))), "small")
})

test("an answer to a call that was given up is dropped", async (context) => {
  const path = endpoint(context)
  const heard = []
  const controller = new AbortController()
  await peer(context, path, ({ kind, id }, socket) => {
    heard.push(kind)
    if (heard.length === 1) controller.abort(new Error("enough"))
    else if (kind === KIND.CANCEL) socket.write(Buffer.concat([framed(KIND.END, id, bytes("late")), framed(KIND.END, id, bytes("twice"))]))
    else if (heard.length > 2) socket.write(framed(KIND.END, id, bytes("next")))
  })
  const client = await connect(context, path)
  assert.equal((await failure(client.call(bytes("a"), { signal: controller.signal }))).message, "enough")
  assert.equal(text(await client.call(bytes("b"))), "next")
  assert.deepEqual(heard, [KIND.REQUEST, KIND.CANCEL, KIND.REQUEST])
})

test("a signal that was aborted before keeps the call from being made", async (context) => {
  const path = endpoint(context)
  let requests = 0
  await serve(context, path, (frame, reply) => (requests++, reply.end(frame)))
  const client = await connect(context, path)
  await assert.rejects(client.call(bytes("x"), { signal: AbortSignal.abort() }), { name: "AbortError" })
  await client.call(bytes("y"))
  assert.equal(requests, 1)
})

test("a deadline ends a call whatever its handler does", async (context) => {
  const path = endpoint(context)
  let aborted
  await serve(context, path, (_, reply) => new Promise((resolve) => {
    aborted = new Promise((tell) => reply.signal.addEventListener("abort", () => (tell(), resolve())))
  }))
  const client = await connect(context, path)
  const error = await failure(client.call(bytes("x"), { deadlineMs: 20 }))
  assert.deepEqual([error.code, error.retry], ["DEADLINE_EXCEEDED", "unknown"])
  await aborted
})

test("a deadline for every call", async (context) => {
  const path = endpoint(context)
  await serve(context, path, () => new Promise(() => {}))
  const client = await connect(context, path, { deadlineMs: 20 })
  assert.equal((await failure(client.call(bytes("x")))).code, "DEADLINE_EXCEEDED")
})

test("a client that was closed says so, and so do its calls", async (context) => {
  const path = endpoint(context)
  await serve(context, path, () => new Promise(() => {}))
  const client = await connect(context, path, { inFlightMax: 1 })
  const calls = [failure(client.call(bytes("a"))), failure(client.call(bytes("b")))]
  client.close()
  client.close()
  for (const error of await Promise.all(calls)) assert.equal(error.code, "CLOSED")
  assert.equal((await failure(client.call(bytes("c")))).code, "CLOSED")
})

test("a client that may connects anew with its next call", async (context) => {
  const path = endpoint(context)
  const first = await serve(context, path, echo)
  const client = await connect(context, path, { reconnect: true })
  assert.equal(text(await client.call(bytes("one"))), "one")
  await first.close()
  await serve(context, path, echo)
  // The first may still find the old connection's end.
  await client.call(bytes("lost")).catch((error) => assert.ok(error instanceof ServiceError))
  assert.equal(text(await client.call(bytes("two"))), "two")
})
