"use strict"

// The event loop: never blocked, kept alive exactly while somebody waits, and left in good order.

const assert = require("node:assert/strict")
const { execFile } = require("node:child_process")
const { once } = require("node:events")
const { readdirSync } = require("node:fs")
const test = require("node:test")
const { promisify } = require("node:util")
const { Worker, markAsUntransferable } = require("node:worker_threads")
const { Client, HOME, Server, ServiceError, bytes, connect, echo, endpoint, folder, serve, text } = require("./service-helpers.js")

const run = promisify(execFile)

/** Runs a program to its end: it has `service` and `path`. */
async function program(context, path, text) {
  const source = `const service = require(${JSON.stringify(HOME)}); const path = ${JSON.stringify(path)};
    const bytes = (text) => Buffer.from(text);
    (async () => { ${text} })()`
  const { stdout } = await run(process.execPath, ["-e", source], { timeout: 60_000 })
  return stdout.trim()
}

test("an idle client lets the process end", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const said = await program(context, path, `
    const client = await service.Client.connect(path)
    console.log((await client.call(bytes("x"))).length)`)
  assert.equal(said, "1")
})

test("a call under way keeps the process alive, unless told otherwise", async (context) => {
  const path = endpoint(context)
  await serve(context, path, (frame, reply) => new Promise((resolve) => setTimeout(() => resolve(reply.end(frame)), 100)))
  const call = (how) => `
    const client = (await service.Client.connect(path))${how}
    process.on("exit", () => console.log("over"))
    await client.call(bytes("x"))
    console.log("answered")`
  assert.equal(await program(context, path, call("")), "answered\nover")
  assert.equal(await program(context, path, call(".unref()")), "over")
})

test("a server keeps the process alive until it closes, unless told otherwise", async (context) => {
  const path = endpoint(context)
  const said = await program(context, path, `
    const server = await service.Server.listen(path, () => {})
    process.on("exit", () => console.log("over"))
    setTimeout(() => { console.log("listening"); server.close() }, 50).unref()`)
  assert.equal(said, "listening\nover")
  assert.equal(await program(context, path, `(await service.Server.listen(path, () => {})).unref(); console.log("x")`), "x")
})

test("timers go on while calls do", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const client = await connect(context, path)
  let ticks = 0
  let isOver = false
  const ticking = setInterval(() => ++ticks === 20 && (isOver = true), 1)
  while (!isOver) await Promise.all(Array.from({ length: 16 }, () => client.call(bytes("x"))))
  clearInterval(ticking)
})

test("a thread may end in the middle of calls", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const source = `
    const { Client } = require(${JSON.stringify(HOME)})
    const { parentPort } = require("node:worker_threads")
    Client.connect(${JSON.stringify(path)}).then(async (client) => {
      for (let n = 0; ; n++) {
        await Promise.all(Array.from({ length: 16 }, () => client.call(Buffer.from("x"))))
        if (n === 3) parentPort.postMessage("under way")
      }
    })`
  for (let n = 0; n < 8; n++) {
    const worker = new Worker(source, { eval: true })
    await once(worker, "message")
    await worker.terminate()
  }
})

test("a thread may end in the middle of serving", async (context) => {
  for (let n = 0; n < 8; n++) {
    const path = endpoint(context)
    const source = `
      const { Server } = require(${JSON.stringify(HOME)})
      const { parentPort } = require("node:worker_threads")
      Server.listen(${JSON.stringify(path)}, (frame, reply) => reply.end(frame)).then(() => parentPort.postMessage("ready"))`
    const worker = new Worker(source, { eval: true })
    await once(worker, "message")
    const client = await Client.connect(path)
    const calls = Array.from({ length: 100 }, () => client.call(bytes("x")).catch(() => {}))
    await calls[0]
    await worker.terminate()
    await Promise.all(calls)
    client.close()
  }
})

test("clients and servers may be closed from what they call", async (context) => {
  const path = endpoint(context)
  const server = await Server.listen(path, (frame, reply) => {
    reply.end(frame)
    server.close()
  })
  const client = await Client.connect(path)
  await client.call(bytes("x")).then(() => client.close())
  await server.close()
})

test("nothing is left behind", async (context) => {
  const descriptors = () => readdirSync("/proc/self/fd").length
  const home = folder(context)
  const round = async (n) => {
    const path = `${home}/${n}.${n % 2 === 0 ? "sock" : "shm"}`
    const server = await Server.listen(path, echo)
    const client = await Client.connect(path)
    await client.call(bytes("x"))
    client.close()
    await server.close()
    // Handles are closed in a later phase of the loop.
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  for (let n = 0; n < 4; n++) await round(n)
  const before = descriptors()
  for (let n = 0; n < 20; n++) await round(n)
  const deadline = Date.now() + 60_000
  while (descriptors() > before) {
    assert.ok(Date.now() < deadline, `${descriptors()} descriptors, ${before} before`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
})

test("what a handler's callback throws ends the process as it would anywhere", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const said = await program(context, path, `
    process.on("uncaughtException", (error) => { console.log("caught", error.message); process.exit() })
    const client = await service.Client.connect(path)
    client.hear = () => { throw new Error("ours") }
    client.call(bytes("x"))`)
  assert.equal(said, "caught ours")
})

test("timers of a server go on however much came at once", async (context) => {
  const path = endpoint(context)
  const seen = { calls: 0, byTimer: undefined }
  await serve(context, path, (frame, reply) => {
    if (seen.calls++ === 0) setTimeout(() => (seen.byTimer = seen.calls), 1)
    for (const end = performance.now() + 1; performance.now() < end; );
    reply.end(frame)
  })
  const client = await connect(context, path)
  await Promise.all(Array.from({ length: 512 }, () => client.call(bytes("x"))))
  assert.equal(seen.calls, 512)
  assert.ok(seen.byTimer < 128, `${seen.byTimer} calls of 1 ms were answered before a timer of 1 ms`)
})

test("timers of a client go on however quickly it is answered", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const client = await connect(context, path)
  const { native } = client
  const END = 2
  // A server that has answered every request by the time it was written.
  client.native = {
    flush: () => true,
    hold() {},
    close: () => native.close(),
    turn(bytes, at) {
      const slot = client.waiters.findIndex((waiter) => waiter !== undefined)
      if (slot < 0) return at
      new Uint32Array(bytes.buffer).set([0, END, slot, 0, 0], at / 4)
      return at + 20
    },
  }
  let isOver = false
  setTimeout(() => (isOver = true), 1)
  let calls = 0
  for (; !isOver; calls++) {
    assert.ok(calls < 200_000, `${calls} calls before a timer of 1 ms`)
    await client.call(bytes("x"))
  }
})

test("a client whose reactor fails says so to everybody", async (context) => {
  const path = endpoint(context)
  await serve(context, path, () => new Promise(() => {}), { drainGraceMs: 1 })
  for (const call of ["flush", "turn"]) {
    const client = await Client.connect(path)
    const first = client.call(bytes("x"))
    const { native } = client
    client.native = {
      flush: () => true,
      hold() {},
      close: () => native.close(),
      [call]() {
        throw new Error(JSON.stringify({ code: "SYSTEM", message: "no descriptor is left" }))
      },
    }
    await assert.rejects(first, { name: "ServiceError", code: "SYSTEM", message: "no descriptor is left" })
    await assert.rejects(client.call(bytes("y")), { code: "CLOSED" })
  }
})

// Nothing of these is told to the server, or nothing comes of it: they end here.
const ENDING_HERE = [
  ["left over a plain connection", { plain: true }, (controller) => setTimeout(() => controller.abort(), 50)],
  ["had not left", {}, (controller) => controller.abort()],
]

test("a call that is aborted leaves its place to the next one", async (context) => {
  for (const [what, options, abort] of ENDING_HERE) {
    const path = endpoint(context)
    await serve(context, path, (frame, reply) => (frame[0] === 120 ? new Promise(() => {}) : reply.end(frame)), { drainGraceMs: 1 })
    const client = await connect(context, path, { ...options, inFlightMax: 1 })
    const controller = new AbortController()
    const aborted = client.call(bytes("x"), { signal: controller.signal })
    abort(controller)
    await assert.rejects(aborted, { name: "AbortError" })
    for (let n = 0; n < 6000 && client.inFlight > 0; n++) await new Promise((resolve) => setTimeout(resolve, 10))
    assert.equal(client.inFlight, 0, what)
  }
})

test("a call that is aborted lets the process end", async (context) => {
  const path = endpoint(context)
  await serve(context, path, () => new Promise(() => {}), { drainGraceMs: 1 })
  for (const [what, options, abort] of ENDING_HERE) {
    const said = await program(context, path, `
      const client = await service.Client.connect(path, ${JSON.stringify(options)})
      const controller = new AbortController()
      const aborted = client.call(bytes("x"), { signal: controller.signal })
      ;(${abort})(controller)
      await aborted.catch((error) => console.log(error.name))`)
    assert.equal(said, "AbortError", what)
  }
})

/** Has the next flush fail, at a client or a server. */
function failFlush(owner) {
  const { native } = owner
  const error = new ServiceError("SYSTEM", "on purpose")
  owner.native = { flush: () => { throw error }, stop: () => native.stop(), close: () => native.close() }
  return error
}

// What a handler throws is the server's to catch: so these note what they see, and it is looked at outside.

test("a server that can say nothing any more ends, and says nothing twice", async (context) => {
  const path = endpoint(context)
  const seen = {}
  const server = await Server.listen(path, (frame, reply) => {
    const error = failFlush(server)
    seen.closed = assert.rejects(server.close(), error)
    reply.end(frame)
    server.flush()
    seen.used = server.outbox.used
    // Nothing more can be said, and that is no error of the handler's.
    reply.fail("OVERLOADED")
    seen.isThrough = true
  })
  const client = await connect(context, path)
  await assert.rejects(client.call(bytes("x")), { code: "DISCONNECTED" })
  const { closed, ...rest } = seen
  assert.deepEqual(rest, { used: 0, isThrough: true })
  assert.ok(closed)
  await closed
})

// So much is flushed at once, within the handler.
const MUCH = 2 << 20

test("a server that ended in the middle of a batch hears none of the rest", async (context) => {
  const path = endpoint(context)
  const seen = { heard: [] }
  const server = await Server.listen(path, (frame, reply) => {
    seen.heard.push(text(frame))
    if (seen.heard.length > 1) return
    seen.closed = assert.rejects(server.close(), failFlush(server))
    reply.item(Buffer.alloc(MUCH)).then((goesOn) => (seen.goesOn = goesOn))
    seen.items = server.items.length
  })
  const client = await connect(context, path)
  // Both leave in one write.
  const calls = ["x", "y"].map((what) => assert.rejects(client.call(bytes(what)), { code: "DISCONNECTED" }))
  await Promise.all(calls)
  const { closed, ...rest } = seen
  assert.deepEqual(rest, { heard: ["x"], goesOn: false, items: 0 })
  assert.ok(closed)
  await closed
})

test("the error that ends a server is thrown once, where no handler catches it", async (context) => {
  for (const [when, length] of [["within the handler", MUCH], ["behind it", 1]]) {
    const said = await program(context, endpoint(context), `
      process.on("uncaughtException", (error, origin) => console.log(origin, error.message))
      const server = await service.Server.listen(path, (frame, reply) => {
        reply.item(new Uint8Array(512 << 10)).then((goesOn) => console.log("goes on", goesOn))
        const { native } = server
        server.native = { flush() { throw new Error("ours") }, close: () => native.close() }
        try {
          reply.end(new Uint8Array(${length}))
        } catch (error) {
          console.log("the handler caught", error.message)
        }
      })
      const client = await service.Client.connect(path)
      await client.call(bytes("x")).catch((error) => console.log(error.code))
      await server.close().catch((error) => console.log("closed", error.message))`)
    const lines = said.split("\n").sort()
    assert.deepEqual(lines, ["DISCONNECTED", "closed ours", "goes on false", "uncaughtException ours"], when)
  }
})

test("a client that can say nothing any more fails what is under way, and says nothing twice", async (context) => {
  const path = endpoint(context)
  await serve(context, path, () => new Promise(() => {}))
  const client = await connect(context, path)
  const first = client.call(bytes("x"))
  client.flush()
  const error = failFlush(client)
  const second = client.call(bytes("y"))
  for (const call of [first, second]) await assert.rejects(call, error)
  assert.equal(client.outbox.used, 0)
  await assert.rejects(client.call(bytes("z")), { code: "CLOSED" })
})

/** Gives a frame to a byte stream, which takes its buffer. */
const give = (frame) => new ReadableStream({ type: "bytes", start: (controller) => controller.enqueue(frame) })
const ROBBED = /given to a byte stream.*: give copies/

/** Why a byte stream can take no frame; false where it can. From Node.js 24 on it refuses what is marked as a frame's buffer is. */
function refusal() {
  const { buffer } = new Uint8Array(1)
  markAsUntransferable(buffer)
  try {
    give(new Uint8Array(buffer))
  } catch {
    return "byte streams take no frame here"
  }
  return false
}

test("a client that is robbed of answers it has not heard fails its calls, and says why", { timeout: 60_000, skip: refusal() }, async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const client = await connect(context, path)
  const { hear } = client
  // Hearing one takes as long as may be heard at all in a turn of the loop.
  client.hear = (...record) => {
    hear.apply(client, record)
    while (performance.now() < client.turns.until);
  }
  const calls = Array.from({ length: 64 }, () => client.call(bytes("x")))
  const outcomes = Promise.allSettled(calls)
  const first = await calls[0]
  const { inbox } = client.turns
  assert.ok(inbox.at < inbox.end, "all answers were heard already")
  give(first)
  const lost = (await outcomes).filter(({ status }) => status === "rejected")
  assert.ok(lost.length > 0)
  for (const { reason } of lost) {
    assert.deepEqual([reason.name, reason.code], ["ServiceError", "SYSTEM"])
    assert.match(reason.message, ROBBED)
  }
})

test("a server that is robbed of requests it has not heard ends, and says why", { timeout: 60_000, skip: refusal() }, async (context) => {
  const said = await program(context, endpoint(context), `
    process.on("uncaughtException", (error) => console.log(error.code, error.message))
    const server = await service.Server.listen(path, (frame, reply) => {
      (${give})(frame)
      reply.end(bytes("taken"))
    })
    const client = await service.Client.connect(path)
    const calls = await Promise.allSettled([1, 2].map(() => client.call(bytes("x"))))
    console.log(calls.map(({ reason }) => reason.code).join())
    await server.close().catch(({ code }) => console.log("closed", code))`)
  const lines = said.split("\n")
  assert.match(lines[0], ROBBED)
  assert.deepEqual(lines.slice(1), ["DISCONNECTED,DISCONNECTED", "closed SYSTEM"])
})
