"use strict"

const assert = require("node:assert/strict")
const { readFileSync } = require("node:fs")
const { join } = require("node:path")
const { test } = require("node:test")
const { rpc, served, service, state } = require("./served.js")

const { Session, StateError } = state

/** A session of which everything is refused like this. */
const refused = (error) => new Session({ call: () => Promise.reject(error), close: () => {} })
const text = (bytes) => (bytes === null ? null : Buffer.from(bytes).toString())

test("what was not committed is taken back, whatever carries the session", async (t) => {
  const { ways } = await served(t)
  for (const way of ways) {
    const session = await Session.open(way)
    const other = await Session.open(way)
    assert.deepEqual([session.fork, session.leaseMs, session.isPending], ["main", 30000, false])
    await assert.rejects(session.rollback(), (error) => error instanceof StateError && error.code === "NO_SNAPSHOT")
    await session.put("a", Buffer.from("before"))
    const root = await session.root()
    const at = await session.snapshot()
    await session.write([["a", Uint8Array.of(255, 0)], ["b", Buffer.from("1")], ["c", null]])
    assert.deepEqual([...(await session.get("a"))], [255, 0])
    assert.equal(text(await other.get("a")), "before")
    await session.rollback()
    assert.deepEqual(await session.root(), root)
    await session.snapshot()
    await session.put("a", Buffer.from("kept"))
    assert.ok((await session.snapshot()) > at, "a snapshot while one is pending commits that one")
    assert.equal(text(await other.get("a")), "kept")
    await session.remove("a")
    assert.equal(await session.commit(), await session.commit())
    assert.equal(await other.get("a"), null)
    await session.snapshot()
    await other.put("d", Buffer.from("theirs"))
    await session.put("d", Buffer.from("mine"))
    await assert.rejects(session.commit(), { code: "CONFLICT", name: "StateError" })
    await session.rollback()
    const { entries, next } = await session.scan({ limit: 1 })
    assert.deepEqual([entries.map(([key, value]) => [key, text(value)]), next], [[["d", "theirs"]], null])
    await session.remove("d")
    await session.close()
    await other.close()
  }
})

test("a session is closed as what disposes of it closes it", async (t) => {
  const { ways } = await served(t)
  const session = await Session.open(ways[0])
  const token = session.token
  await session[Symbol.asyncDispose]()
  await assert.rejects(Session.rejoin(ways[0], token), { code: "SESSION_EXPIRED" })
  await session[Symbol.asyncDispose]()
})

test("a token is good on every way in until the server ends", async (t) => {
  const server = await served(t)
  const tokens = []
  for (const [n, way] of server.ways.entries()) {
    const session = await Session.open(way, { leaseMs: 600_000 })
    await session.snapshot()
    await session.put("volatile", Buffer.from("1"))
    session.leave()
    const again = await Session.rejoin(server.ways[(n + 1) % 3], session.token)
    assert.equal(again.isPending, true)
    assert.equal(text(await again.get("volatile")), "1")
    again.leave()
    tokens.push(session.token)
  }
  const over = await Session.open(server.ways[0])
  await over.close()
  await assert.rejects(Session.rejoin(server.ways[2], over.token), { code: "SESSION_EXPIRED" })
  await server.end()
  const { ways } = await served(t, server.data)
  for (const [n, token] of tokens.entries()) {
    await assert.rejects(Session.rejoin(ways[n], token), { code: "SESSION_LOST" })
    const session = await Session.open(ways[n])
    assert.equal(await session.get("volatile"), null)
    await session.close()
  }
})

test("a value is bytes and text is none", async (t) => {
  const { ways } = await served(t)
  for (const way of ways) {
    const session = await Session.open(way)
    for (const value of ["anna", 5, null, undefined]) {
      await assert.rejects(session.put("name", value), { name: "ServiceError", code: "BAD_ARGUMENT", message: /encode text first/ })
    }
    await assert.rejects(session.write([["a", Uint8Array.of(1)], ["name", "anna"]]), { code: "BAD_ARGUMENT" })
    assert.deepEqual(await session.scan(), { entries: [], next: null })
    await session.close()
  }
})

test("what cannot be said to a session is refused before it is sent, in the same words whichever way it would go", async (t) => {
  const { ways } = await served(t)
  const one = Uint8Array.of(1)
  const calls = {
    put: (session) => session.put(5, one),
    "put of half a pair": (session) => session.put("\ud800", one),
    get: (session) => session.get(),
    "get of half a pair": (session) => session.get("a\udc00"),
    remove: (session) => session.remove(null),
    write: (session) => session.write([["a", one], [5, null]]),
    "write of nothing": (session) => session.write(),
    "write of no list": (session) => session.write({ a: one }),
    "write of no pair": (session) => session.write([["a", one], null]),
    "write of half a pair": (session) => session.write([["\ud800", null]]),
    scan: (session) => session.scan({ limit: -1 }),
    "scan of a part": (session) => session.scan({ limit: 1.5 }),
    "scan of too many": (session) => session.scan({ limit: 2 ** 32 }),
    "scan of NaN": (session) => session.scan({ limit: NaN }),
    "scan from half a pair": (session) => session.scan({ start: "\ud800" }),
    "lease of NaN": (_, way) => Session.open(way, { leaseMs: NaN }),
    "lease below nothing": (_, way) => Session.open(way, { leaseMs: -1 }),
    "fork of half a pair": (_, way) => Session.open(way, { fork: "\ud800" }),
    "token of half a pair": (_, way) => Session.rejoin(way, "\ud800"),
  }
  const said = []
  for (const way of ways) {
    const session = await Session.open(way)
    const messages = []
    for (const [name, call] of Object.entries(calls)) {
      const isRight = ({ name, code, retry, message }) => {
        messages.push(message)
        return name === "ServiceError" && code === "BAD_ARGUMENT" && retry === "never"
      }
      await assert.rejects(call(session, way), isRight, `${name} at ${way}`)
    }
    assert.deepEqual(await session.scan(), { entries: [], next: null })
    await session.close()
    said.push(messages)
  }
  for (const messages of said) assert.deepEqual(messages, said[0])
})

test("a session that was closed or left has nothing to end, however often it is closed", async (t) => {
  const { ways } = await served(t)
  for (const way of ways) {
    const session = await Session.open(way)
    await Promise.all([session.close(), session.close(), session.close()])
    await session.close()
    await assert.rejects(session.get("a"), { code: "CLOSED" })
    await assert.rejects(Session.rejoin(way, session.token), { code: "SESSION_EXPIRED" })
    const left = await Session.open(way)
    left.leave()
    await left.close()
    const again = await Session.rejoin(way, left.token)
    await again.close()
  }
})

test("each refusal code of the state says whether the same call may be made again, as its page does", async () => {
  const page = readFileSync(join(__dirname, "../../../docs/state.md"), "utf8")
  const table = page.slice(page.indexOf("## Refusals"), page.indexOf("## In a program of your own"))
  const rows = [...table.matchAll(/^\| `(\w+)` \|.*\| (\w+) \|$/gm)].map(([, code, again]) => [code, again])
  assert.equal(rows.length, 19)
  for (const [code, again] of rows) {
    const why = `${code}: and why`
    for (const error of [new service.ServiceError("REFUSED", why), new rpc.RemoteError(-32000, why, { fault: "refused" })]) {
      const told = { name: "StateError", code: code.toUpperCase(), retry: again, message: why }
      await assert.rejects(refused(error).commit(), told, code)
    }
  }
})

test("a session is told of its server's crash and of nothing else", async (t) => {
  let server = await served(t)
  for (const n of [0, 1]) {
    const session = await Session.open(server.ways[n])
    await session.snapshot()
    await server.end("SIGKILL")
    server = await served(t, server.data)
    // What was sent may have been carried out.
    await assert.rejects(session.commit(), ({ code }) => code === "SESSION_LOST" || code === "DISCONNECTED")
    for (const call of ["commit", "root", "close"]) await assert.rejects(session[call](), { code: "SESSION_LOST" }, call)
    await assert.rejects(session.root(), { code: "CLOSED" })
  }
})

test("calls of a session that are made together keep their order, whichever way they go", async (t) => {
  const { ways } = await served(t)
  for (const way of ways) {
    const session = await Session.open(way)
    for (let round = 0; round < 50; round++) {
      const put = session.put("key", Uint8Array.of(1))
      const read = session.get("key")
      const [, kept] = await Promise.all([put, read, session.remove("key")]).then(([, value]) => [0, value])
      assert.deepEqual([...kept], [1])
      await Promise.all([session.snapshot(), session.put("key", Uint8Array.of(2)), session.rollback()])
      assert.equal(await session.get("key"), null)
    }
    await session.close()
  }
})

test("a session is refused what it cannot be opened with, in the same words as everything else", async (t) => {
  const { ways } = await served(t)
  const bad = { name: "ServiceError", code: "BAD_ARGUMENT" }
  await assert.rejects(Session.open(), bad)
  await assert.rejects(Session.open(ways[0], { lease: 5 }), bad)
  await assert.rejects(Session.open(ways[0], { leaseMs: "5" }), bad)
  await assert.rejects(Session.rejoin(ways[0]), bad)
  const session = await Session.open(ways[0], { fork: null, leaseMs: null, http: null })
  assert.equal(session.fork, "main")
  await session.close()
  // What a server says in a fault of the table comes as that fault, over HTTP as over a socket.
  const error = new rpc.RemoteError(-32602, "and why", { fault: "bad_request" })
  await assert.rejects(refused(error).get("a"), { name: "ServiceError", code: "BAD_REQUEST", message: "and why" })
})
