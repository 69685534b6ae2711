"use strict"

// What a server does with its handlers, and how it ends.

const assert = require("node:assert/strict")
const { existsSync } = require("node:fs")
const test = require("node:test")
const { after, bytes, connect, echo, endpoint, failure, serve, text } = require("./service-helpers.js")

const soon = () => new Promise((resolve) => setTimeout(resolve, 10))

test("a handler that throws, rejects or forgets is answered for", async (context) => {
  const path = endpoint(context)
  await serve(context, path, (frame) => {
    const what = text(frame)
    if (what === "throw") throw new Error("thrown")
    if (what === "reject") return Promise.reject(new Error("rejected"))
    return undefined
  })
  const client = await connect(context, path)
  for (const [what, says] of [["throw", /thrown/], ["reject", /rejected/], ["forget", /gave no answer/]]) {
    const error = await failure(client.call(bytes(what)))
    assert.deepEqual([error.code, error.retry], ["ABANDONED", "unknown"])
    assert.match(error.message, says)
  }
})

test("whatever a handler throws is answered for, and so is the next call", async (context) => {
  const path = endpoint(context)
  const odd = [
    { message: { a: 1 } }, { message: 42 }, { message: Symbol("s") }, Object.create(null), undefined, null, Symbol("s"),
    { get message() { throw new Error("no message") } }, { message: Object.create(null) },
  ]
  await serve(context, path, (frame) => {
    const [way, n] = text(frame).split(" ")
    if (way === "throw") throw odd[n]
    return Promise.reject(odd[n])
  })
  const client = await connect(context, path)
  for (const n of odd.keys()) {
    for (const way of ["throw", "reject"]) {
      const { code, message } = await failure(client.call(bytes(`${way} ${n}`), { deadlineMs: 60_000 }))
      assert.equal(code, "ABANDONED", `${way} ${n}: ${message}`)
    }
  }
  assert.match((await failure(client.call(bytes("throw 1")))).message, /42/)
})

test("what a handler throws behind its answer is its own, whenever it answered", async (context) => {
  const path = endpoint(context)
  const unhandled = []
  const hear = (error) => unhandled.push(error)
  process.on("unhandledRejection", hear)
  after(context, () => process.off("unhandledRejection", hear))
  await serve(context, path, async (frame, reply) => {
    if (text(frame) === "later") await soon()
    reply.end(frame)
    throw new Error("behind its answer")
  })
  const client = await connect(context, path)
  for (const what of ["later", "at once"]) assert.equal(text(await client.call(bytes(what))), what)
  await soon()
  assert.deepEqual(unhandled, [])
})

test("a fault of the handler's own choice", async (context) => {
  const path = endpoint(context)
  await serve(context, path, (_, reply) => {
    assert.throws(() => reply.fail("NO_SUCH_FAULT"), { code: "BAD_ARGUMENT" })
    reply.fail("OVERLOADED", "later")
    // Once is enough.
    reply.fail("REFUSED", "again")
    reply.end(bytes("again"))
  })
  const error = await failure((await connect(context, path)).call(bytes("x")))
  assert.deepEqual([error.code, error.retry], ["OVERLOADED", "safe"])
})

test("a refusal comes in the service's own words", async (context) => {
  const path = endpoint(context)
  await serve(context, path, (_, reply) => reply.fail("REFUSED", "because"), { errorTag: "EchoErrorResponse" })
  const client = await connect(context, path)
  const frame = await client.call(bytes("x"))
  assert.equal(text(frame), "\ufffd\ufffdEchoErrorResponse\ufffd\ufffdmessage\ufffdbecause")
  assert.deepEqual([...(await client.stream(bytes("x")).next()).value], [...frame])
})

test("a server that closes answers what is under way and takes its path along", async (context) => {
  for (const kind of ["sock", "shm"]) {
    const path = endpoint(context, kind)
    const held = []
    const server = await serve(context, path, (frame, reply) => void held.push(() => reply.end(frame)) ?? new Promise(() => {}))
    const client = await connect(context, path)
    const calls = ["a", "b", "c"].map((word) => client.call(bytes(word)))
    while (held.length < 3) await soon()
    const closing = server.close()
    assert.equal(server.close(), closing)
    await soon()
    for (const answer of held) answer()
    assert.deepEqual((await Promise.all(calls)).map(text), ["a", "b", "c"])
    await closing
    assert.equal(existsSync(path), false)
    const late = await failure(client.call(bytes("late")))
    assert.ok(["DRAINING", "DISCONNECTED", "NOT_SENT"].includes(late.code), late.code)
  }
})

test("a server that closes does not wait for handlers for ever", async (context) => {
  const path = endpoint(context)
  let signal
  const server = await serve(context, path, (_, reply) => ((signal = reply.signal), new Promise(() => {})), { drainGraceMs: 50 })
  const client = await connect(context, path)
  const call = failure(client.call(bytes("x")))
  while (signal === undefined) await soon()
  await server.close()
  assert.equal(signal.aborted, true)
  assert.ok(["DISCONNECTED", "DRAINING", "ABANDONED"].includes((await call).code))
})

test("a handler hears that its client went away", async (context) => {
  const path = endpoint(context)
  let signal
  await serve(context, path, (_, reply) => ((signal = reply.signal), new Promise(() => {})))
  const client = await connect(context, path)
  const call = failure(client.call(bytes("x")))
  while (signal === undefined) await soon()
  assert.equal(signal.aborted, false)
  client.close()
  await call
  while (!signal.aborted) await soon()
})

test("every handler hears that its client went away, however many they are", async (context) => {
  const path = endpoint(context)
  const calls = 1000
  let [started, gone] = [0, 0]
  const server = await serve(context, path, (frame, reply) => {
    if (frame.length > 1) return reply.end(frame)
    started++
    reply.signal.addEventListener("abort", () => gone++)
    return new Promise(() => {})
  }, { inFlightMax: calls, drainGraceMs: 50 })
  const [client, other] = [await connect(context, path, { inFlightMax: calls }), await connect(context, path)]
  const failures = Array.from({ length: calls }, () => failure(client.call(bytes("x"))))
  while (started < calls) await soon()
  // The area that is filled with the news has room for some of it only.
  const room = () => server.turns.inbox.bytes.length - server.turns.inbox.at
  while (room() > 8000 || room() < 4096) await other.call(Buffer.alloc(1000))
  client.close()
  await Promise.all(failures)
  for (let n = 0; n < 6000 && gone < calls; n++) await soon()
  assert.equal(gone, calls)
})

test("clients are told apart and counted", async (context) => {
  const path = endpoint(context)
  const clients = new Set()
  const server = await serve(context, path, (frame, reply) => (clients.add(reply.client), reply.end(frame)))
  const [one, two] = [await connect(context, path), await connect(context, path)]
  for (const client of [one, two, one, two]) await client.call(bytes("x"))
  assert.equal(clients.size, 2)
  const { clients: now, requests, answers, inFlight, inFlightBytes } = server.stats()
  assert.deepEqual([now, requests, answers, inFlight, inFlightBytes], [2, 4, 4, 0, 0])
})

test("a client that never reads holds up nobody else", async (context) => {
  const path = endpoint(context)
  await serve(context, path, (frame, reply) => reply.end(Buffer.alloc(1 << 20)), { unsentBytesMax: 1 << 20 })
  const net = require("node:net")
  const silent = net.connect(path)
  after(context, () => silent.destroy())
  silent.pause()
  await new Promise((resolve) => silent.once("connect", resolve))
  // Plain frames of one byte each.
  for (let n = 0; n < 200; n++) silent.write(Buffer.from([1, 0, 0, 0, 7]))
  const client = await connect(context, path)
  for (let n = 0; n < 5; n++) assert.equal((await client.call(bytes("x"))).length, 1 << 20)
})

test("half a frame holds up nobody else", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const half = require("node:net").connect(path)
  after(context, () => half.destroy())
  half.write(Buffer.from([100, 0, 0, 0, 1, 2, 3]))
  assert.equal(text(await (await connect(context, path)).call(bytes("x"))), "x")
})

test("a handler hears that nobody waits, although there was no room for the news at first", async (context) => {
  const path = endpoint(context)
  const CHANGED = 2
  let first
  const server = await serve(context, path, (_frame, reply) => {
    first = reply
    reply.signal.addEventListener("abort", () => {})
    return new Promise(() => {})
  }, { drainGraceMs: 1 })
  const client = await connect(context, path)
  const controller = new AbortController()
  const given = failure(client.call(bytes("x"), { signal: controller.signal }))
  while (first === undefined) await soon()
  await soon()
  // From here on the test takes the turns.
  server.turns.take = () => {}
  after(context, () => delete server.turns.take)
  failure(client.call(Buffer.alloc(1000)))
  const narrow = Buffer.alloc(64)
  while (server.native.waitingBytes() === 0) {
    await soon()
    server.native.turn(narrow, 0)
  }
  controller.abort()
  await given
  await soon()
  assert.ok(server.native.turn(narrow, 0) < 0)
  const area = Buffer.alloc(4096)
  const end = server.native.turn(area, 0)
  const heard = []
  for (let at = 0; at < end; at += 20 + ((area.readUInt32LE(at) + 3) & ~3)) heard.push([area.readUInt32LE(at + 4), area.readUInt32LE(at + 8)])
  assert.ok(heard.some(([what, slot]) => what === CHANGED && slot === first.slot), `${heard}`)
})

test("a server that closes gives nobody another's answer", async (context) => {
  const path = endpoint(context)
  const replies = []
  const server = await serve(context, path, (frame, reply) => {
    replies.push(reply)
    // By now the server knows that nobody waits for the first answer, whose handler did not hear of it.
    if (replies.length === 2) {
      replies[0].end(bytes("to the first"))
      setImmediate(() => reply.end(bytes("to the second")))
    }
    return new Promise(() => {})
  })
  const [first, second] = [await connect(context, path), await connect(context, path)]
  const controller = new AbortController()
  const given = failure(first.call(bytes("x"), { signal: controller.signal }))
  while (replies.length === 0) await soon()
  controller.abort()
  await given
  // The first call has ended, but for its handler.
  while (server.stats().answers === 0) await soon()
  // The request lies in the socket when the server closes, and is still taken.
  const answer = second.call(bytes("y"))
  second.flush()
  await Promise.all([server.close(), answer.then((frame) => assert.equal(text(frame), "to the second"))])
})

// In shared memory. One read of the server's brings 64 KiB: a request that is handed out, and part of one that is refused for its
// length. What stands behind that comes with the read that follows the handing out.
const BEHIND = { frameBytesMax: 1000, drainGraceMs: 1 }

function behindAnotherRead(client) {
  for (const frame of [bytes("small"), Buffer.alloc(100 << 10)]) failure(client.call(frame))
}

test("a handler hears that nobody waits, although the server did behind what it handed out", async (context) => {
  const path = endpoint(context, "shm")
  const heard = []
  let signal
  await serve(context, path, (frame, reply) => {
    heard.push(text(frame))
    signal ??= reply.signal
    return new Promise(() => {})
  }, BEHIND)
  const client = await connect(context, path)
  const controller = new AbortController()
  const given = failure(client.call(bytes("x"), { signal: controller.signal }))
  while (heard.length < 1) await soon()
  await soon()
  behindAnotherRead(client)
  controller.abort()
  await given
  for (let n = 0; n < 6000 && !signal.aborted; n++) await soon()
  assert.equal(signal.aborted, true)
  assert.deepEqual(heard, ["x", "small"])
})

test("a stream goes on, although its credit came behind what the server handed out", async (context) => {
  const path = endpoint(context, "shm")
  let made = 0
  await serve(context, path, async (frame, reply) => {
    if (text(frame) !== "stream") return new Promise(() => {})
    while (await reply.item(bytes(`item ${made}`))) made++
  }, BEHIND)
  const client = await connect(context, path)
  const frames = client.stream(bytes("stream"), { credit: 4 })
  after(context, () => frames.return())
  // Eight items are made ahead, and another one when they have left and there is credit, which is granted for every second one.
  for (let n = 0; n < 5; n++) await frames.next()
  while (frames.items.frames.length < 1) await soon()
  const before = made
  behindAnotherRead(client)
  await frames.next()
  for (let n = 0; n < 6000 && made === before; n++) await soon()
  assert.ok(made > before, `${made} items were made`)
})

test("a handler that asks late whether anybody waits is told", async (context) => {
  const path = endpoint(context)
  let reply
  const server = await serve(context, path, (_frame, given) => ((reply = given), new Promise(() => {})), { drainGraceMs: 1 })
  const client = await connect(context, path)
  const controller = new AbortController()
  const given = failure(client.call(bytes("x"), { signal: controller.signal }))
  while (reply === undefined) await soon()
  controller.abort()
  await given
  while (server.stats().answers === 0) await soon()
  const { signal } = reply
  for (let n = 0; n < 6000 && !signal.aborted; n++) await soon()
  assert.equal(signal.aborted, true)
})
