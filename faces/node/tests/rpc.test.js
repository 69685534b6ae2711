"use strict"

const assert = require("node:assert/strict")
const { readFileSync } = require("node:fs")
const net = require("node:net")
const { test } = require("node:test")
const { after } = require("./helpers.js")
const { rpc, served, service, state: { Session } } = require("./served.js")

const { RemoteError, RpcClient, Schema } = rpc

function open(context, url, options) {
  const client = new RpcClient(url, options)
  after(context, () => client.close())
  return client
}

/** A server that takes connections and says nothing; its URL. */
async function silent(context) {
  const sockets = []
  const server = net.createServer((socket) => sockets.push(socket.on("error", () => {})))
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  after(context, () => {
    sockets.forEach((socket) => socket.destroy())
    server.close()
  })
  return `http://127.0.0.1:${server.address().port}/`
}

test("calls share connections, batches come in order, notifications have no answer", async (t) => {
  const { url } = await served(t)
  const client = open(t, `${url}/rpc/state`, { connectionsMax: 2 })
  const puts = Array.from({ length: 50 }, (_, n) => client.call("Put", ["main", `${n}`, Uint8Array.of(n, 255)]))
  assert.equal((await Promise.all(puts)).length, 50)
  assert.deepEqual(await client.call("Get", { place: "main", key: "7" }), { value: "B/8=" })
  await client.notify("Remove", ["main", "7"])
  const [count, unknown] = await client.batch([["Count", ["main"]], ["Nothing"]])
  assert.deepEqual(count, { count: 49 })
  assert.ok(unknown instanceof RemoteError && unknown.number === -32601 && unknown.fault === "UNKNOWN_COMMAND")
  const note = { name: "notes", contentType: "text/plain", closed: false }
  const created = await client.call("Create", note, { url: `${url}/rpc/log` })
  assert.equal(created.created, true)
  const { opened, inFlight } = client.statistics
  assert.deepEqual([opened, inFlight], [2, 0])
})

test("integers are exact both ways", async (t) => {
  const { url } = await served(t)
  const client = open(t, `${url}/rpc/state`)
  const most = 2n ** 64n - 1n
  await assert.rejects(client.call("Fork", { parent: "main", offset: most }), (error) => error.message.includes(`${most}`))
  const value = { deep: [most, -(2n ** 63n), 9007199254740991, "18446744073709551615", '\\"12345678901234567890', 1e300, 0.5] }
  const echo = net.createServer((socket) => {
    socket.on("error", () => {})
    socket.on("data", (chunk) => {
      const body = chunk.toString().split("\r\n\r\n")[1]
      const [, params] = /"params":(.*?)(?:,"id":\d+)?}$/.exec(body)
      const [, id] = /"id":(\d+)/.exec(body)
      const text = `{"jsonrpc":"2.0","result":${params},"id":${id}}`
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`)
    })
  })
  await new Promise((resolve) => echo.listen(0, "127.0.0.1", resolve))
  after(t, () => echo.close())
  assert.deepEqual(await client.call("Same", value, { url: `http://127.0.0.1:${echo.address().port}/` }), value)
})

test("a batch that is refused as a whole may be made again", async (t) => {
  const { url } = await served(t)
  const client = open(t, `${url}/rpc/state`)
  const answers = await client.batch(Array.from({ length: 1001 }, () => ["Count", ["main"]]))
  assert.equal(answers.length, 1001)
  for (const { number, fault, retry } of answers) assert.deepEqual([number, fault, retry], [-32600, undefined, "safe"])
  assert.equal(new RemoteError(-32603, "").retry, "unknown")
})

test("what the server says is told from what went wrong", async (t) => {
  const { url } = await served(t)
  const client = open(t, `${url}/rpc/state`, { inFlightMax: 1 })
  await assert.rejects(client.call("Drop", ["main"]), { name: "RemoteError", number: -32000, fault: "REFUSED", retry: "never" })
  await assert.rejects(client.call("Get", { place: "main", kez: 1 }), {
    number: -32602,
    data: { fault: "bad_request", retry: "never", field: "kez" },
  })
  await assert.rejects(client.call("Get", "main"), { code: "BAD_ARGUMENT" })
  assert.throws(() => new RpcClient("ftp://x"), { code: "BAD_ARGUMENT" })
  const quiet = await silent(t)
  await assert.rejects(client.call("Any", [], { url: quiet, deadlineMs: 2_000 }), { code: "DEADLINE_EXCEEDED" })
  const controller = new AbortController()
  const waiting = client.call("Any", [], { url: quiet, signal: controller.signal })
  await assert.rejects(client.call("Any", []), { code: "OVERLOADED", retry: "safe" })
  controller.abort(new Error("enough"))
  await assert.rejects(waiting, /enough/)
  assert.equal(client.statistics.inFlight, 0)
  const last = client.call("Any", [], { url: quiet })
  client.close()
  await assert.rejects(last, { code: "CLOSED" })
  await assert.rejects(client.call("Forks"), { code: "CLOSED" })
})

/** A server that does with each request what `says` does; its URL, and what was asked. */
async function scripted(context, says) {
  const asked = []
  const server = net.createServer((socket) => {
    let came = ""
    socket.on("error", () => {})
    socket.on("data", (chunk) => {
      came += chunk
      const [head, body] = came.split("\r\n\r\n")
      if (body === undefined || body.length < Number(/content-length: *(\d+)/i.exec(head)[1])) return
      came = ""
      asked.push(body)
      const text = says(/"id":(\d+)/.exec(body)[1], asked.length)
      if (text === undefined) socket.destroy()
      else socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${text.length}\r\n\r\n${text}`)
    })
  })
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  after(context, () => server.close())
  return { url: `http://127.0.0.1:${server.address().port}/`, port: server.address().port, asked }
}

const right = (id) => `{"jsonrpc":"2.0","result":"right","id":${id}}`

test("an answer with another id is not taken, and its connection closed", async (t) => {
  const ids = [() => 99, () => null, (id) => `"${id}"`, (id) => `${id}.0`, (id) => id]
  const { url } = await scripted(t, (id, number) => right(ids[number - 1](id)))
  const client = open(t, url)
  for (let number = 1; number < ids.length; number++) {
    await assert.rejects(client.call("Any"), { code: "BAD_ANSWER" })
    assert.equal(client.statistics.closed, number)
  }
  assert.equal(await client.call("Any"), "right")
})

test("where a kept connection ends, only what may be repeated is repeated, and once", async (t) => {
  const { url, asked } = await scripted(t, (id, number) => ([1, 3, 5].includes(number) ? right(id) : undefined))
  const client = open(t, url)
  assert.equal(await client.call("Pay"), "right")
  await assert.rejects(client.call("Pay"), { code: "DISCONNECTED", retry: "unknown" })
  assert.deepEqual([asked.length, client.statistics.retried], [2, 0])
  assert.equal(await client.call("Pay"), "right")
  assert.equal(await client.call("Look", [], { idempotent: true }), "right")
  assert.deepEqual([asked.length, client.statistics.retried], [5, 1])
  await assert.rejects(client.call("Look", [], { idempotent: true }), { code: "DISCONNECTED" })
  assert.deepEqual([asked.length, client.statistics.retried], [7, 2])
})

// What the kernel says of a socket.
const LISTENS = "0A"
const TIME_WAIT = "06"

/** The sockets at a port that are in a state, each by its two addresses. */
function socketsAt(port, asked) {
  const mark = `:${port.toString(16).toUpperCase().padStart(4, "0")}`
  const rows = readFileSync("/proc/net/tcp", "utf8").split("\n").map((line) => line.trim().split(/\s+/))
  const isAsked = ([, local, remote, state]) => state === asked && (local.endsWith(mark) || remote.endsWith(mark))
  return rows.filter(isAsked).map(([, local, remote]) => `${local} ${remote}`)
}

test("a thousand connections leave no address that cannot be used again", async (t) => {
  const { url, port } = await scripted(t, right)
  // The port may be one that somebody else had a moment ago, whose clients left some.
  const before = socketsAt(port, TIME_WAIT)
  assert.equal(socketsAt(port, LISTENS).length, 1, "the server is not found either")
  const client = open(t, url, { idleMax: 0 })
  for (let number = 0; number < 1_000; number++) assert.equal(await client.call("Any"), "right")
  const { opened, closed, reused } = client.statistics
  assert.deepEqual([opened, closed, reused], [1_000, 1_000, 0])
  assert.deepEqual(socketsAt(port, TIME_WAIT).filter((pair) => !before.includes(pair)), [])
})

test("a token goes with every request, and one that would end a line is refused", async (t) => {
  const asked = []
  const server = net.createServer((socket) => {
    socket.on("error", () => {})
    socket.on("data", (chunk) => {
      asked.push(String(chunk))
      const answer = '{"jsonrpc":"2.0","result":null,"id":1}'
      socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${answer.length}\r\n\r\n${answer}`)
    })
  })
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  after(t, () => server.close())
  const url = `http://127.0.0.1:${server.address().port}/`
  await open(t, url, { token: "tw_4fPq" }).call("Any")
  assert.match(asked[0], /\r\nAuthorization: Bearer tw_4fPq\r\n/)
  // What is answered is no session's: only what is asked matters here.
  await assert.rejects(Session.open(url, { http: { token: "tw_5" } }))
  await assert.rejects(Session.rejoin(url, "0", { http: { token: "tw_6" } }))
  assert.match(asked[1], /\r\nAuthorization: Bearer tw_5\r\n/)
  assert.match(asked[2], /\r\nAuthorization: Bearer tw_6\r\n/)
  for (const token of ["", "a b", "a\r\nX: y", 7]) {
    assert.throws(() => new RpcClient(url, { token }), { code: "BAD_ARGUMENT" })
  }
})

test("a schema calls over a socket without generated code", async (t) => {
  const { ways } = await served(t)
  const state = new Schema()
  const client = await service.Client.connect(ways[1], { schema: state.hash })
  after(t, () => client.close())
  assert.deepEqual(state.result("Count", await client.call(state.request("Count", ["main"]))), { count: 0 })
  assert.throws(() => state.request("Count", []), { code: "BAD_ARGUMENT" })
  assert.throws(() => new Schema("{}"), { code: "BAD_ARGUMENT" })
})

test("a server of another schema is no server of a session", async (t) => {
  const { url } = await served(t)
  const state = new Schema()
  const client = open(t, `${url}/rpc/state`)
  await client.expectSchema(state.hash)
  await assert.rejects(client.expectSchema(state.hash, { url: `${url}/rpc/log` }), { code: "SCHEMA_MISMATCH" })
  await assert.rejects(Session.open(`${url}/rpc/log`), { code: "SCHEMA_MISMATCH" })
  await assert.rejects(Session.rejoin(`${url}/rpc/log`, "0"), { code: "SCHEMA_MISMATCH" })
})

test("a word that no call and no client knows is refused", async (t) => {
  const wrong = { name: "ServiceError", code: "BAD_ARGUMENT" }
  for (const options of [{ deadlineMS: 5 }, { answerBytesMax: "1" }, { token: 5 }, null]) {
    assert.throws(() => new RpcClient("http://127.0.0.1:9/rpc/log", options), wrong)
  }
  const client = open(t, "http://127.0.0.1:9/rpc/log")
  for (const options of [{ idempotant: true }, { url: 5 }, { deadlineMs: "5" }]) {
    await assert.rejects(client.call("Any", [], options), wrong)
  }
})
