"use strict"

// What the types say may be given is taken, and no other word; what cannot be right is refused in words, before anything is done.

const assert = require("node:assert/strict")
const { existsSync, readFileSync } = require("node:fs")
const { join } = require("node:path")
const test = require("node:test")
const { after, folder, open } = require("./helpers.js")
const { Client, Server, SyncClient, bytes, connect, echo, endpoint, failure, serve, spawn, text } = require("./service-helpers.js")
const { rpc: { RpcClient, Schema }, state: { Session } } = require("./served.js")

const HOME = process.env.THALWEG_PACKAGE ?? join(__dirname, "..")
const NOWHERE = "http://127.0.0.1:1/rpc/x"
const UNKNOWN = { nonsense: 1 }

/** Words of an interface, and of those that it extends. */
function declared(file, name) {
  const text = readFileSync(join(HOME, file), "utf8")
  const [, base, body] = new RegExp(`export interface ${name} (?:extends (\\w+) )?\\{\n([^]*?)\n\\}`).exec(text)
  const words = [...body.matchAll(/^ {2}(?:readonly )?(\w+)\??:/gm)].map(([, word]) => word)
  return base === undefined ? words : [...words, ...declared(file, base)]
}

const blocking = Object.create(SyncClient.prototype)
const TAKES = {
  "index.d.ts": { OpenOptions: () => open("unused", UNKNOWN) },
  "rpc.d.ts": {
    RpcOptions: () => new RpcClient(NOWHERE, UNKNOWN),
    AskOptions: () => new RpcClient(NOWHERE).call("x", {}, UNKNOWN),
  },
  "service.d.ts": {
    ConnectOptions: () => Client.connect("a.sock", UNKNOWN),
    SyncConnectOptions: () => SyncClient.connect("a.sock", UNKNOWN),
    ListenOptions: () => Server.listen("a.sock", echo, UNKNOWN),
    SyncCallOptions: () => blocking.call(bytes("x"), UNKNOWN),
    SpawnOptions: () => spawn("true", [], { endpoint: "a.sock", ...UNKNOWN }),
  },
  "state.d.ts": { OpenOptions: () => Session.open("a.sock", UNKNOWN) },
}

for (const [file, interfaces] of Object.entries(TAKES)) {
  for (const [name, act] of Object.entries(interfaces)) {
    test(`${file}: ${name} has the words that are taken`, async () => {
      const { code, message } = await failure((async () => act())())
      assert.equal(code, "BAD_ARGUMENT")
      assert.deepEqual(message.split("it takes ")[1].split(", ").sort(), declared(file, name).sort())
    })
  }
}

test("a call takes what its type says", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const { message } = await failure((await connect(context, path)).call(bytes("x"), UNKNOWN))
  assert.deepEqual(message.split("it takes ")[1].split(", ").sort(), declared("service.d.ts", "CallOptions").sort())
})

for (const options of [{ inFlightBytesMax: 0 }, { inFlightBytesMax: NaN }, { drainGraceMs: -1 }, { helloWithinMs: -1 }]) {
  test(`a server does not listen with ${JSON.stringify(options)}`, async (context) => {
    assert.equal((await failure(Server.listen(endpoint(context), echo, options))).code, "BAD_ARGUMENT")
  })
}

test("a server waits for clients for as long as it is told, for good too", async (context) => {
  const warnings = []
  const note = ({ name }) => warnings.push(name)
  process.on("warning", note)
  after(context, () => process.off("warning", note))
  const path = endpoint(context)
  const server = await Server.listen(path, echo, { drainGraceMs: Infinity, helloWithinMs: Infinity, inFlightBytesMax: 1 << 20 })
  const client = await Client.connect(path)
  await client.call(bytes("x"))
  client.close()
  await server.close()
  await new Promise(setImmediate)
  assert.deepEqual(warnings, [])
})

const SPAWNED = [
  { readyWithinMs: NaN }, { readyWithinMs: -1 }, { stopWithinMs: NaN }, { respawn: { limit: NaN } }, { respawn: { firstMs: -1 } },
  { respawn: { mostMs: NaN } }, { env: { A: 1 } }, { env: { A: undefined } }, { endpoint: "no-such-kind" },
]
for (const options of SPAWNED) {
  test(`nothing is started with ${Object.entries(options).flat().map((word) => JSON.stringify(word) ?? "undefined")}`, async (context) => {
    const home = folder(context)
    const started = join(home, "started")
    const given = { endpoint: join(home, "a.sock"), readyWithinMs: 50, ...options }
    const error = await failure(spawn("/bin/sh", ["-c", `: > ${started}`], given))
    assert.equal(error.code, "BAD_ARGUMENT", error.message)
    assert.equal(existsSync(started), false)
  })
}

test("nothing is started with arguments that are no text", async (context) => {
  const error = await failure(spawn("/bin/sh", ["-c", 1], { endpoint: endpoint(context) }))
  assert.equal(error.code, "BAD_ARGUMENT", error.message)
})

/** Every word of an interface, left out by null. */
const nulls = (file, name) => Object.fromEntries(declared(file, name).map((word) => [word, null]))

test("options that are null are as they are", async (context) => {
  const path = endpoint(context)
  await open(folder(context), nulls("index.d.ts", "OpenOptions")).close()
  await serve(context, path, echo, nulls("service.d.ts", "ListenOptions"))
  const service = { schema: null, errorTag: null, dispatch: echo }
  for (const options of [undefined, {}, { errorTag: null }]) await serve(context, endpoint(context), service, options)
  const client = await connect(context, path, nulls("service.d.ts", "ConnectOptions"))
  assert.equal(text(await client.call(bytes("x"), nulls("service.d.ts", "CallOptions"))), "x")
  for await (const frame of client.stream(bytes("y"), nulls("service.d.ts", "CallOptions"))) assert.equal(text(frame), "y")
  const missing = await failure(spawn("/no/such/program", [], { ...nulls("service.d.ts", "SpawnOptions"), endpoint: endpoint(context) }))
  assert.match(missing.message, /No such file/)
  const nowhere = new RpcClient(NOWHERE, nulls("rpc.d.ts", "RpcOptions"))
  after(context, () => nowhere.close())
  assert.equal((await failure(nowhere.call("x", {}, nulls("rpc.d.ts", "AskOptions")))).code, "NO_SERVER")
})

const circle = {}
circle.circle = circle
const ASKED = {
  "a signal that is none": (client) => client.call("x", {}, { signal: {} }),
  "a time that is none": (client) => client.call("x", {}, { deadlineMs: NaN }),
  "a method that is no text": (client) => client.call(5),
  "parameters that go in a circle": (client) => client.call("x", circle),
  "parameters that become nothing": (client) => client.call("x", { toJSON: () => undefined }),
  "a batch that is none": (client) => client.batch(5),
  "a batch of what is no call": (client) => client.batch([5]),
  "a batch of nothing": (client) => client.batch([]),
}
for (const [what, act] of Object.entries(ASKED)) {
  test(`JSON-RPC refuses ${what}`, async (context) => {
    const client = new RpcClient(NOWHERE)
    after(context, () => client.close())
    const error = await failure(act(client))
    assert.deepEqual([error.name, error.code], ["ServiceError", "BAD_ARGUMENT"], error.stack)
  })
}

test("JSON-RPC obeys any signal that tells of its end", async (context) => {
  const client = new RpcClient(NOWHERE)
  after(context, () => client.close())
  // As libraries that are older than the platform's make them.
  const signal = Object.assign(new EventTarget(), { aborted: true, reason: "enough" })
  assert.equal(await failure(client.call("x", {}, { signal })), "enough")
})

for (const options of [{ answerBytesMax: NaN }, { answerBytesMax: 1.5 }, { answerBytesMax: -1 }, { connectionsMax: -1 }, { idleForMs: NaN }]) {
  test(`JSON-RPC does not begin with ${JSON.stringify(options)}`, () => {
    const [name] = Object.keys(options)
    assert.throws(() => new RpcClient(NOWHERE, options), (error) => error.code === "BAD_ARGUMENT" && error.message.includes(name))
  })
}

test("a frame that is none is refused by a schema", () => {
  for (const frame of [undefined, "text", {}]) assert.throws(() => new Schema().result("Get", frame), { code: "BAD_ARGUMENT" })
  for (const none of [5, {}, Symbol("Get")]) {
    const words = { code: "BAD_ARGUMENT", message: "a method is a string" }
    assert.throws(() => new Schema().request(none), words)
    assert.throws(() => new Schema().result(none, new Uint8Array(1)), words)
    assert.throws(() => new Schema(none), { code: "BAD_ARGUMENT", message: "a schema is text, and so is its name" })
    assert.throws(() => new Schema("{}", none), { code: "BAD_ARGUMENT", message: "a schema is text, and so is its name" })
  }
})

test("a stream that waits refuses what cannot be right where it is asked for", () => {
  for (const options of [{ deadlineMs: -1 }, { credit: 0 }, UNKNOWN]) {
    assert.throws(() => blocking.stream(bytes("x"), options), { code: "BAD_ARGUMENT" })
  }
  assert.throws(() => blocking.stream("x"), { code: "BAD_ARGUMENT" })
})
