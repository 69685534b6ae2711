"use strict"

// Calls over both transports: what is asked is answered, in whatever order, of whatever size.

const assert = require("node:assert/strict")
const test = require("node:test")
const {
  Client, KIND, Server, SyncClient, bytes, connect, echo, endpoint, failure, framed, handOn, peer, serve, spawn, text,
} = require("./service-helpers.js")

for (const kind of ["sock", "shm"]) {
  test(`a call is answered (${kind})`, async (context) => {
    const path = endpoint(context, kind)
    await serve(context, path, echo)
    const client = await connect(context, path)
    assert.equal(client.isShared, kind === "shm")
    assert.equal(text(await client.call(bytes("hello"))), "hello")
  })

  test(`calls in one turn leave together and each has its own answer (${kind})`, async (context) => {
    const path = endpoint(context, kind)
    await serve(context, path, echo)
    const client = await connect(context, path)
    const answers = await Promise.all(Array.from({ length: 500 }, (_, n) => client.call(bytes(`call ${n}`))))
    assert.deepEqual(answers.map(text), Array.from({ length: 500 }, (_, n) => `call ${n}`))
  })

  test(`frames of every size come through whole (${kind})`, async (context) => {
    const path = endpoint(context, kind)
    await serve(context, path, echo)
    const client = await connect(context, path, { ringBytes: 65536 })
    const sizes = [0, 1, 3, 4, 5, 4095, 65535, 65536, 70001, 1 << 20, (8 << 20) + 1]
    const frames = sizes.map((size, n) => Buffer.alloc(size, n + 1))
    const answers = await Promise.all(frames.map((frame) => client.call(frame)))
    for (const [n, answer] of answers.entries()) assert.ok(frames[n].equals(answer), `${sizes[n]} bytes`)
  })

  test(`answers leave as they are ready (${kind})`, async (context) => {
    const path = endpoint(context, kind)
    const held = []
    await serve(context, path, (frame, reply) => {
      held.push(() => reply.end(frame))
      if (held.length === 8) for (const answer of held.reverse()) answer()
    })
    const client = await connect(context, path)
    const order = []
    await Promise.all(Array.from({ length: 8 }, (_, n) => client.call(Uint8Array.of(n)).then(([n]) => order.push(n))))
    assert.deepEqual(order, [7, 6, 5, 4, 3, 2, 1, 0])
  })

  test(`four clients at once get their own answers (${kind})`, async (context) => {
    const path = endpoint(context, kind)
    await serve(context, path, async (frame, reply) => {
      await new Promise((resolve) => setImmediate(resolve))
      reply.end(frame)
    })
    const clients = await Promise.all(Array.from({ length: 4 }, () => connect(context, path)))
    const asked = clients.flatMap((client, c) => Array.from({ length: 128 }, (_, n) => [client, `${c}:${n}`]))
    const answers = await Promise.all(asked.map(([client, word]) => client.call(bytes(word))))
    assert.deepEqual(answers.map(text), asked.map(([, word]) => word))
  })
}

test("plain frames are answered in order", async (context) => {
  const path = endpoint(context)
  const held = []
  await serve(context, path, (frame, reply) => {
    held.push(() => reply.end(frame))
    if (held.length === 4) for (const answer of held.reverse()) answer()
  })
  const client = await connect(context, path, { plain: true })
  const order = []
  await Promise.all(Array.from({ length: 4 }, (_, n) => client.call(Uint8Array.of(n)).then(([n]) => order.push(n))))
  assert.deepEqual(order, [0, 1, 2, 3])
})

test("one server listens at several endpoints", async (context) => {
  const paths = [endpoint(context), endpoint(context, "shm")]
  await serve(context, paths, echo)
  for (const path of paths) assert.equal(text(await (await connect(context, path)).call(bytes("x"))), "x")
})

test("more calls than may be in flight wait for their turn", async (context) => {
  const path = endpoint(context)
  let most = 0
  let now = 0
  await serve(context, path, async (frame, reply) => {
    most = Math.max(most, ++now)
    await new Promise((resolve) => setImmediate(resolve))
    now--
    reply.end(frame)
  })
  const client = await connect(context, path, { inFlightMax: 3 })
  const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => client.call(Uint8Array.of(n))))
  assert.deepEqual(answers.map(([n]) => n), Array.from({ length: 50 }, (_, n) => n))
  assert.ok(most <= 3, `${most} were in flight`)
})

/** A handler that says back what it was asked once the test says so. */
function held() {
  const asked = []
  const dispatch = (frame, reply) => new Promise((resolve) => {
    const answer = () => resolve(reply.end(frame))
    asked.push({ frame, answer })
  })
  return { asked, dispatch }
}

test("a call that waits for its turn is over when its time is", async (context) => {
  const path = endpoint(context)
  const { asked, dispatch } = held()
  await serve(context, path, dispatch)
  const client = await connect(context, path, { inFlightMax: 1 })
  const first = client.call(bytes("first"))
  const late = await failure(client.call(bytes("late"), { deadlineMs: 20 }))
  assert.deepEqual([late.code, late.retry], ["NOT_SENT", "safe"])
  const brief = await connect(context, path, { inFlightMax: 1, deadlineMs: 20 })
  const ends = await Promise.all([1, 2, 3].map((n) => failure(brief.call(Uint8Array.of(n)))))
  assert.deepEqual(ends.map(({ code }) => code), ["DEADLINE_EXCEEDED", "NOT_SENT", "NOT_SENT"])
  while (!asked.some(({ frame }) => text(frame) === "first")) await new Promise(setImmediate)
  for (const { answer } of asked) answer()
  assert.equal(text(await first), "first")
  assert.ok(asked.every(({ frame }) => text(frame) !== "late"))
})

test("calls that wait for their turn keep their requests, and no more of them than may wait", async (context) => {
  const path = endpoint(context)
  const { asked, dispatch } = held()
  await serve(context, path, dispatch)
  const client = await connect(context, path, { inFlightMax: 1, unsentBytesMax: 4096 })
  const first = client.call(bytes("first"))
  const request = bytes("second")
  const second = client.call(request)
  request.fill(0)
  const controller = new AbortController()
  const large = client.call(Buffer.alloc(3000), { signal: controller.signal })
  const refused = await failure(client.call(Buffer.alloc(3000)))
  assert.deepEqual([refused.code, refused.retry], ["OVERLOADED", "safe"])
  controller.abort(new Error("enough"))
  assert.equal((await failure(large)).message, "enough")
  const third = client.call(Buffer.alloc(3000))
  const answering = setInterval(() => asked.shift()?.answer(), 1)
  context.after(() => clearInterval(answering))
  assert.deepEqual([text(await first), text(await second), (await third).length], ["first", "second", 3000])
})

test("what was answered is not written over by what comes later", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const client = await connect(context, path)
  const kept = []
  for (let n = 0; n < 300; n++) kept.push(await client.call(Buffer.alloc(1000, n % 251)))
  for (const [n, frame] of kept.entries()) assert.ok(frame.every((byte) => byte === n % 251), `answer ${n}`)
})

test("an answer that is handed on whole takes no other with it", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const client = await connect(context, path)
  const [first, second] = await Promise.all(["first", "second"].map((what) => client.call(bytes(what))))
  assert.equal(first.buffer, second.buffer)
  handOn(first)
  assert.deepEqual([text(first), text(second)], ["first", "second"])
  assert.equal(text(await client.call(bytes("third"))), "third")
})

test("a client connects before its server listens", async (context) => {
  const path = endpoint(context)
  const connecting = Client.connect(path)
  await new Promise((resolve) => setTimeout(resolve, 30))
  await serve(context, path, echo)
  const client = await connecting
  assert.equal(text(await client.call(bytes("late"))), "late")
  client.close()
})

// More than are heard between two looks at the clock.
const ANSWERED_AT_ONCE = 16

test("the server is told of a call that is given up while its answer waits to be heard", async (context) => {
  const path = endpoint(context)
  const asked = []
  const cancelled = []
  await peer(context, path, ({ kind, id }, socket) => {
    if (kind === KIND.CANCEL) cancelled.push(id)
    if (kind !== KIND.REQUEST) return
    asked.push(id)
    const answered = asked.length === ANSWERED_AT_ONCE ? asked : asked.slice(ANSWERED_AT_ONCE).slice(-1)
    if (answered.length > 0) socket.write(Buffer.concat(answered.map((id) => framed(KIND.END, id, bytes("a name")))))
  })
  const client = await connect(context, path)
  const { hear } = client
  // Hearing one takes as long as may be heard at all in a turn of the loop.
  client.hear = (...record) => {
    while (performance.now() < client.turns.until);
    hear.apply(client, record)
  }
  const controller = new AbortController()
  const calls = Array.from({ length: ANSWERED_AT_ONCE - 1 }, () => client.call(bytes("x")))
  const last = assert.rejects(client.call(bytes("x"), { signal: controller.signal }), { name: "AbortError" })
  await calls[0]
  const { inbox } = client.turns
  assert.ok(inbox.at < inbox.end, "the answers were heard already")
  controller.abort()
  await Promise.all([...calls, last])
  // Behind what the server was told.
  await client.call(bytes("y"))
  assert.deepEqual(cancelled, [asked[ANSWERED_AT_ONCE - 1]])
})

test("a call that was never made is given up, and not the one whose slot it was given", async (context) => {
  const path = endpoint(context)
  const cancelled = []
  await peer(context, path, ({ kind, id }, socket) => {
    if (kind === KIND.CANCEL) cancelled.push(id)
    if (kind === KIND.REQUEST) socket.write(framed(KIND.END, id, bytes("a name")))
  })
  const client = await connect(context, path, { unsentBytesMax: 1 << 10 })
  const call = (length, options) => client.call(Buffer.alloc(length), options)
  for (const isGivenUp of [false, true]) {
    // Both slots name calls that were answered.
    await Promise.all([call(1), call(1)])
    const controller = new AbortController()
    // Of these there is no room for the second.
    const made = call(1000)
    const refused = call(1000, { signal: controller.signal })
    if (isGivenUp) controller.abort()
    await assert.rejects(refused, isGivenUp ? { name: "AbortError" } : { code: "OVERLOADED" })
    await made
  }
  await call(1)
  assert.deepEqual(cancelled, [])
})

test("arguments that can never be right are refused", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const client = await connect(context, path)
  const wrong = { name: "ServiceError", code: "BAD_ARGUMENT", retry: "never" }
  await assert.rejects(client.call("text"), wrong)
  await assert.rejects(client.call(bytes("x"), { deadlineMs: -1 }), wrong)
  await assert.rejects(client.call(bytes("x"), { credit: 0 }), wrong)
  assert.throws(() => client.stream(bytes("x"), { credit: 0 }), wrong)
  await assert.rejects(Client.connect(7), wrong)
  await assert.rejects(Client.connect("a.txt"), wrong)
  await assert.rejects(Client.connect(path, { schema: "12" }), wrong)
  await assert.rejects(Client.connect(path, { inFlightMax: 0 }), wrong)
  assert.equal(text(await client.call(bytes("still here"))), "still here")
})

test("a word that nobody knows is refused, and so is one of another kind", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const client = await connect(context, path)
  const wrong = { name: "ServiceError", code: "BAD_ARGUMENT" }
  await assert.rejects(client.call(bytes("x"), { deadlineMS: 5 }), { ...wrong, message: /takes no deadlineMS: it takes deadlineMs/ })
  await assert.rejects(client.call(bytes("x"), { signal: 5 }), wrong)
  assert.throws(() => client.stream(bytes("x"), { credits: 5 }), wrong)
  for (const options of [{ connectWithinMS: 5 }, { shared: "yes" }, { schema: 5 }, "plain", null]) {
    await assert.rejects(Client.connect(path, options), wrong)
    assert.throws(() => SyncClient.connect(path, options), wrong)
  }
  for (const options of [{ grace: 5 }, { spin: 1 }, { errorTag: 7 }, null]) await assert.rejects(Server.listen(path, echo, options), wrong)
  for (const options of [{ endpoint: path, onGone: 5 }, { endpoint: path, respawn: 5 }, { endpoint: path, respawn: { limits: 1 } }]) {
    await assert.rejects(spawn("true", [], options), wrong)
  }
})
