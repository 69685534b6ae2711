"use strict"

const assert = require("node:assert/strict")
const net = require("node:net")
const { test } = require("node:test")
const { after } = require("./helpers.js")
const { rpc, served, service } = require("./served.js")

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

test("what the server says is told from what went wrong", async (t) => {
  const { url } = await served(t)
  const client = open(t, `${url}/rpc/state`, { inFlightMax: 1 })
  await assert.rejects(client.call("Drop", ["main"]), { name: "RemoteError", number: -32000, fault: "REFUSED", retry: "never" })
  await assert.rejects(client.call("Get", { place: "main", kez: 1 }), { number: -32602, data: { field: "kez" } })
  await assert.rejects(client.call("Get", "main"), { code: "BAD_ARGUMENT" })
  assert.throws(() => new RpcClient("ftp://x"), { code: "BAD_ARGUMENT" })
  const quiet = await silent(t)
  await assert.rejects(client.call("Any", [], { url: quiet, deadlineMs: 50 }), { code: "DEADLINE_EXCEEDED" })
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

test("a schema calls over a socket without generated code", async (t) => {
  const { ways } = await served(t)
  const state = new Schema()
  const client = await service.Client.connect(ways[1], { schema: state.hash })
  after(t, () => client.close())
  assert.deepEqual(state.result("Count", await client.call(state.request("Count", ["main"]))), { count: 0 })
  assert.throws(() => state.request("Count", []), { code: "BAD_ARGUMENT" })
  assert.throws(() => new Schema("{}"), { code: "BAD_ARGUMENT" })
})
