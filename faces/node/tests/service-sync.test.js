"use strict"

// The client that waits, against a server in another thread.

const assert = require("node:assert/strict")
const { execFile } = require("node:child_process")
const { EventEmitter, once } = require("node:events")
const net = require("node:net")
const test = require("node:test")
const { promisify } = require("node:util")
const { Worker } = require("node:worker_threads")
const { HOME, Server, SyncClient, after, bytes, endpoint, folder, handOn, text } = require("./service-helpers.js")

const run = promisify(execFile)

async function elsewhere(context, kind) {
  const path = endpoint(context, kind)
  const source = `
    const { Server } = require(${JSON.stringify(HOME)})
    const { parentPort } = require("node:worker_threads")
    const text = (frame) => Buffer.from(frame).toString()
    Server.listen(${JSON.stringify(path)}, async (frame, reply) => {
      const what = text(frame)
      if (what === "never") return new Promise(() => {})
      if (what === "fail") return reply.fail("OVERLOADED", "later")
      if (!what.startsWith("count ")) return reply.end(frame)
      for (let n = 0; n < Number(what.slice(6)); n++) if (!(await reply.item(Buffer.from(String(n))))) break
      reply.end(Buffer.from("end"))
    }).then(() => parentPort.postMessage("ready"))`
  const worker = new Worker(source, { eval: true })
  after(context, () => worker.terminate())
  await once(worker, "message")
  const client = SyncClient.connect(path)
  after(context, () => client.close())
  return client
}

for (const how of ["SyncClient", "Client"]) {
  test(`a ${how} connects over standard input and output`, async (context) => {
    const program = (text) => `node -e '${text}'`
    const required = `const service = require("${HOME}");`
    const server = program(`${required} service.Server.listen("-", (frame, reply) => reply.end(frame))`)
    const client = program(`${required} (async () => {
      const client = await service.${how}.connect("-")
      console.error(Buffer.from(await client.call(Buffer.from("asked"))).toString())
      client.close()
    })()`)
    const script = `mkfifo asked answered; ${server} <asked >answered & ${client} >asked <answered; kill $!`
    const { stderr } = await run("sh", ["-c", script], { cwd: folder(context), timeout: 60_000 })
    assert.equal(stderr, "asked\n")
  })
}

for (const kind of ["sock", "shm"]) {
  test(`calls are answered (${kind})`, async (context) => {
    const client = await elsewhere(context, kind)
    assert.equal(client.isShared, kind === "shm")
    const kept = []
    for (let n = 0; n < 2000; n++) kept.push(client.call(bytes(`call ${n}`)))
    assert.deepEqual(kept.map(text), Array.from({ length: 2000 }, (_, n) => `call ${n}`))
    for (const size of [0, 65_536, 1 << 20]) assert.equal(client.call(Buffer.alloc(size)).length, size)
  })

  test(`streams come to their end (${kind})`, async (context) => {
    const client = await elsewhere(context, kind)
    for (const options of [{ credit: 8 }, undefined]) {
      const frames = [...client.stream(bytes("count 500"), options)].map(text)
      assert.deepEqual(frames, [...Array.from({ length: 500 }, (_, n) => `${n}`), "end"])
    }
    for (const frame of client.stream(bytes("count 1000000000"))) if (text(frame) === "9") break
    assert.equal(text(client.call(bytes("after"))), "after")
  })
}

test("an answer may be asked with, in whose memory the next answers lie", async (context) => {
  const client = await elsewhere(context, "sock")
  const first = client.call(bytes("first"))
  // From in front of it to behind where the next answers come.
  const around = new Uint8Array(first.buffer, 0, 4_000)
  for (let n = 0; n < 3; n++) {
    const asked = Buffer.from(around)
    assert.deepEqual(Buffer.from(client.call(around)), asked)
  }
  assert.equal(text(first), "first")
})

test("an answer that is handed on whole takes no other with it", async (context) => {
  const client = await elsewhere(context, "sock")
  const [first, second] = ["first", "second"].map((what) => client.call(bytes(what)))
  assert.equal(first.buffer, second.buffer)
  handOn(first)
  assert.equal(text(second), "second")
  assert.equal(text(client.call(bytes("third"))), "third")
})

// What waits in native code keeps its thread, and with that the process, from ending.
test("a thread ends while it waits, whatever for", { timeout: 20_000 }, async (context) => {
  const path = endpoint(context)
  const mute = endpoint(context)
  const asked = new EventEmitter()
  const server = await Server.listen(path, (frame) => {
    asked.emit("request", text(frame))
    return new Promise(() => {})
  }, { drainGraceMs: 0 })
  after(context, () => server.close())
  const silent = net.createServer((socket) => {
    socket.on("error", () => {})
    socket.resume()
    asked.emit("request", "connect")
  })
  await new Promise((resolve) => silent.listen(mute, resolve))
  after(context, () => new Promise((resolve) => silent.close(resolve)))
  const ways = {
    call: `SyncClient.connect(${JSON.stringify(path)}).call(Buffer.from("call"))`,
    stream: `[...SyncClient.connect(${JSON.stringify(path)}).stream(Buffer.from("stream"))]`,
    connect: `SyncClient.connect(${JSON.stringify(mute)}, { connectWithinMs: 3_600_000 })`,
  }
  for (const [way, source] of Object.entries(ways)) {
    const request = once(asked, "request")
    const worker = new Worker(`const { SyncClient } = require(${JSON.stringify(HOME)}); ${source}`, { eval: true })
    assert.deepEqual(await request, [way])
    await worker.terminate()
  }
})

test("an item answers no call", async (context) => {
  const client = await elsewhere(context, "sock")
  for (let n = 0; n < 3; n++) assert.throws(() => client.call(bytes("count 1000000000")), { code: "BAD_ANSWER" })
  assert.equal(text(client.call(bytes("after"))), "after")
})

test("what goes wrong is typed", async (context) => {
  const client = await elsewhere(context, "sock")
  assert.throws(() => client.call(bytes("fail")), { name: "ServiceError", code: "OVERLOADED", retry: "safe" })
  assert.throws(() => client.call(bytes("never"), { deadlineMs: 20 }), { code: "DEADLINE_EXCEEDED" })
  assert.throws(() => client.call("text"), { code: "BAD_ARGUMENT" })
  for (const credit of [0, 1.5, -1]) assert.throws(() => client.call(bytes("x"), { credit }), { code: "BAD_ARGUMENT" })
  assert.throws(() => [...client.stream(bytes("fail"))], { code: "OVERLOADED" })
  assert.equal(text(client.call(bytes("still here"))), "still here")
  client.close()
  assert.throws(() => client.call(bytes("x")), { code: "CLOSED" })
  assert.throws(() => SyncClient.connect(endpoint(context), { connectWithinMs: 10 }), { code: "NO_SERVER" })
})

test("a stream whose client is closed meanwhile says so, and an iteration that stops then stops quietly", async (context) => {
  const client = await elsewhere(context, "sock")
  for (const frame of client.stream(bytes("count 1000"))) {
    assert.equal(text(frame), "0")
    client.close()
    break
  }
  const other = await elsewhere(context, "sock")
  const frames = other.stream(bytes("count 1000"), { credit: 1 })
  frames.next()
  other.close()
  assert.throws(() => frames.next(), { name: "ServiceError", code: "CLOSED" })
  const third = await elsewhere(context, "sock")
  const granting = third.stream(bytes("count 1000"), { credit: 2 })
  third.native.grant = () => third.native.next(0, third.slab, third.at)
  assert.throws(() => granting.next(), { name: "ServiceError", code: "BAD_ARGUMENT" })
})

test("nothing is waited for of a call that is over", { timeout: 20_000 }, async (context) => {
  const client = await elsewhere(context, "sock")
  assert.throws(() => client.native.goOn(client.slab, client.at), /no call is under way/)
  assert.equal(text(client.call(bytes("over"))), "over")
  assert.throws(() => client.native.goOn(client.slab, client.at), /no such call is in flight/)
  assert.equal(text(client.call(bytes("after"))), "after")
})

test("throwing into a stream ends it", async (context) => {
  const client = await elsewhere(context, "sock")
  const forgotten = []
  const { native } = client
  client.native = new Proxy(native, {
    get: (target, name) => (...words) => {
      if (name === "forget") forgotten.push(words[0])
      return target[name](...words)
    },
  })
  const frames = client.stream(bytes("count 1000000000"))
  frames.next()
  assert.throws(() => frames.throw(new Error("enough")), { message: "enough" })
  assert.equal(forgotten.length, 1)
  assert.equal(native.knows(forgotten[0]), false)
  assert.deepEqual(frames.next(), { value: undefined, done: true })
  assert.throws(() => [...client.stream(bytes("fail"))], { code: "OVERLOADED" })
  assert.equal(forgotten.length, 1, "what ended by itself needs not be forgotten")
  assert.equal(text(client.call(bytes("after"))), "after")
})
