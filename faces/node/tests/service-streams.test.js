"use strict"

// Streams: no faster than they are read, in order, and over as soon as nobody wants more.

const assert = require("node:assert/strict")
const { getEventListeners } = require("node:events")
const test = require("node:test")
const { setImmediate: turn } = require("node:timers/promises")
const v8 = require("node:v8")
const vm = require("node:vm")
const {
  FAULTS, KIND, bytes, connect, endpoint, failure, framed, peer, serve, text, welcome,
} = require("./service-helpers.js")

const settled = () => new Promise((resolve) => setTimeout(resolve, 20))

/** Counts to the number that was asked for, and says how far it came. */
function counter() {
  const seen = { made: 0, ended: 0, gone: 0 }
  const dispatch = async (frame, reply) => {
    const last = Number(text(frame))
    for (let n = 0; n < last; n++) {
      seen.made++
      if (await reply.item(bytes(`${n}`))) continue
      seen.gone++
      break
    }
    seen.ended++
    reply.end(bytes("end"))
  }
  return { dispatch, seen }
}

for (const kind of ["sock", "shm"]) {
  test(`items come in order, and then the end (${kind})`, async (context) => {
    const path = endpoint(context, kind)
    await serve(context, path, counter().dispatch)
    const client = await connect(context, path)
    const frames = []
    for await (const frame of client.stream(bytes("1000"))) frames.push(text(frame))
    assert.deepEqual(frames, [...Array.from({ length: 1000 }, (_, n) => `${n}`), "end"])
  })
}

test("a stream runs no further ahead than its reader allows", async (context) => {
  const path = endpoint(context)
  const { dispatch, seen } = counter()
  await serve(context, path, dispatch)
  const client = await connect(context, path)
  const stream = client.stream(bytes("1000"), { credit: 10 })
  assert.equal(seen.made, 0)
  assert.equal(text((await stream.next()).value), "0")
  await settled()
  // Ten that were allowed, and those that are held back before the producer is told.
  assert.ok(seen.made <= 10 + 9, `${seen.made} items were made for a reader that took one`)
  let count = 1
  for await (const frame of stream) assert.equal(text(frame), count < 1000 ? `${count++}` : "end")
  assert.equal(count, 1000)
})

test("a stream begins with the credit that its server says", async (context) => {
  const path = endpoint(context)
  const heard = []
  await peer(context, path, ({ kind, id, credit }, socket) => {
    heard.push([kind, credit])
    if (kind === KIND.REQUEST) for (let n = 0; n < 4; n++) socket.write(framed(KIND.ITEM, id, bytes(`${n}`)))
    if (kind === KIND.CREDIT || credit > 0) socket.write(framed(KIND.END, id, bytes("end")))
  }, welcome({ credit: 4 }))
  const client = await connect(context, path)
  const frames = []
  for await (const frame of client.stream(bytes("x"))) frames.push(text(frame))
  assert.deepEqual(frames, ["0", "1", "2", "3", "end"])
  assert.deepEqual(heard.slice(0, 2), [[KIND.REQUEST, 0], [KIND.CREDIT, 2]])
})

test("an item answers no call, and ends its producer", async (context) => {
  const path = endpoint(context)
  const { dispatch, seen } = counter()
  await serve(context, path, dispatch)
  const client = await connect(context, path)
  const error = await failure(client.call(bytes("1000000000")))
  assert.deepEqual([error.code, error.retry], ["BAD_ANSWER", "unknown"])
  while (seen.ended === 0) await settled()
  assert.equal(seen.gone, 1)
  assert.equal(text(await client.call(bytes("0"))), "end")
})

test("a reader that stops early ends the producer", async (context) => {
  const path = endpoint(context)
  const { dispatch, seen } = counter()
  await serve(context, path, dispatch)
  const client = await connect(context, path)
  for await (const frame of client.stream(bytes("1000000000"), { credit: 4 })) if (text(frame) === "5") break
  while (seen.ended === 0) await settled()
  assert.equal(seen.gone, 1)
  const controller = new AbortController()
  const stream = client.stream(bytes("1000000000"), { credit: 4, signal: controller.signal })
  await stream.next()
  controller.abort(new Error("enough"))
  const error = await failure((async () => { for await (const _ of stream); })())
  assert.equal(error.message, "enough")
  while (seen.ended === 1) await settled()
  assert.equal(seen.gone, 2)
})

test("a reader that is collected ends the producer, though not while it waits", async (context) => {
  v8.setFlagsFromString("--expose-gc")
  const collect = vm.runInNewContext("gc")
  const path = endpoint(context)
  const { dispatch, seen } = counter()
  let goOn
  const waits = new Promise((resolve) => (goOn = resolve))
  await serve(context, path, async (frame, reply) => {
    if (text(frame) === "late") {
      await waits
      return reply.end(bytes("at last"))
    }
    return dispatch(frame, reply)
  })
  const client = await connect(context, path)
  const late = client.stream(bytes("late")).next()
  for (let n = 0; n < 3; n++) await (async () => assert.equal(text((await client.stream(bytes("1000000000")).next()).value), "0"))()
  for (let rounds = 0; rounds < 500 && seen.gone < 3; rounds++) {
    collect()
    await turn()
  }
  assert.equal(seen.gone, 3)
  goOn()
  assert.equal(text((await late).value), "at last")
})

test("a client that goes away ends its producers", async (context) => {
  const path = endpoint(context)
  const { dispatch, seen } = counter()
  const server = await serve(context, path, dispatch)
  const client = await connect(context, path)
  await Promise.all([0, 1, 2].map(() => client.stream(bytes("1000000000")).next()))
  client.close()
  while (seen.ended < 3) await settled()
  assert.equal(seen.gone, 3)
  while (server.stats().clients > 0) await settled()
})

test("several may ask a stream for its next at once", async (context) => {
  const path = endpoint(context)
  await serve(context, path, counter().dispatch)
  const client = await connect(context, path)
  const stream = client.stream(bytes("3"))
  const results = await Promise.all(Array.from({ length: 6 }, () => stream.next()))
  assert.deepEqual(results.map(({ value }) => value && text(value)), ["0", "1", "2", "end", undefined, undefined])
  assert.deepEqual(await stream.next(), { value: undefined, done: true })
})

test("several may wait at once until another item may be made", async (context) => {
  const path = endpoint(context)
  await serve(context, path, async (_, reply) => {
    const goesOn = await Promise.all(Array.from({ length: 12 }, (_, n) => reply.item(bytes(`${n}`))))
    reply.end(bytes(`${goesOn.every((word) => word)}`))
  })
  const client = await connect(context, path)
  const frames = []
  for await (const frame of client.stream(bytes("x"), { deadlineMs: 60_000 })) frames.push(text(frame))
  assert.deepEqual(frames, [...Array.from({ length: 12 }, (_, n) => `${n}`), "true"])
})

test("a stream that fails says so after what came before", async (context) => {
  const path = endpoint(context)
  await serve(context, path, async (_, reply) => {
    await reply.item(bytes("one"))
    reply.fail("OVERLOADED", "too much")
  })
  const client = await connect(context, path)
  const stream = client.stream(bytes("x"))
  assert.equal(text((await stream.next()).value), "one")
  const error = await failure(stream.next())
  assert.deepEqual([error.code, error.retry], ["OVERLOADED", "safe"])
  assert.match(error.message, /too much/)
  assert.deepEqual(await stream.next(), { value: undefined, done: true })
})

test("large items do not overrun", async (context) => {
  const path = endpoint(context)
  await serve(context, path, async (_, reply) => {
    for (let n = 0; n < 40; n++) if (!(await reply.item(Buffer.alloc(200_000, n)))) return
    reply.end(bytes("end"))
  })
  const client = await connect(context, path)
  let count = 0
  for await (const frame of client.stream(bytes("x"), { credit: 1 })) {
    if (count < 40) assert.deepEqual([frame.length, frame[199_999]], [200_000, count])
    count++
  }
  assert.equal(count, 41)
})

test("what is said on hearing that nobody waits any more is said", async (context) => {
  const path = endpoint(context)
  let waiting
  await serve(context, path, (frame, reply) => {
    if (text(frame) === "waits") return new Promise(() => (waiting = reply))
    reply.signal.addEventListener("abort", () => waiting.end(bytes("your turn")))
    // More than is held back: the call is ended in the middle of what a turn hands over.
    for (let n = 0; n < 60; n++) reply.item(bytes("item"))
    return new Promise(() => {})
  }, { drainGraceMs: 50 })
  const [client, other] = [await connect(context, path), await connect(context, path)]
  const answered = other.call(bytes("waits"), { deadlineMs: 60_000 })
  while (waiting === undefined) await settled()
  const stream = client.stream(bytes("overruns"), { credit: 1 })
  stream.next().catch(() => {})
  assert.equal(text(await answered), "your turn")
})

for (const [streams, itemBytes] of [[1, (1 << 20) + 1], [6, 300_000]]) {
  test(`a producer goes on behind an item that has the server flush at once (${streams} of ${itemBytes} bytes)`, async (context) => {
    const path = endpoint(context)
    const item = new Uint8Array(itemBytes)
    await serve(context, path, async (_frame, reply) => {
      for (let n = 0; n < 4 && (await reply.item(item)); n++);
      reply.end(bytes("end"))
    })
    const client = await connect(context, path)
    const taken = async () => {
      const lengths = []
      for await (const frame of client.stream(bytes("go"), { signal: AbortSignal.timeout(20_000) })) lengths.push(frame.length)
      return lengths
    }
    const all = await Promise.all(Array.from({ length: streams }, taken))
    for (const lengths of all) assert.deepEqual(lengths, [itemBytes, itemBytes, itemBytes, itemBytes, 3])
  })
}

test("items that nobody takes stop the server, and come once they are taken", async (context) => {
  const items = Array.from({ length: 200 }, (_, n) => Buffer.alloc(64 << 10, n))
  const taken = async (stream) => {
    for (const item of items) assert.deepEqual(Buffer.from((await stream.next()).value), item)
  }
  const ways = {
    taken,
    called: async (stream, client) => {
      assert.equal(text(await client.call(bytes("call"))), "yes")
      await taken(stream)
      assert.equal(text((await stream.next()).value), "end")
    },
    left: async (stream, client) => {
      await stream.return()
      assert.equal(text(await client.call(bytes("call"))), "yes")
    },
    aborted: async (_stream, client, controller) => {
      controller.abort(new Error("enough"))
      assert.equal(text(await client.call(bytes("call"))), "yes")
    },
    overdue: async (_stream, _client, _controller, flooded) => flooded,
  }
  for (const [way, goOn] of Object.entries(ways)) for (const inFlightMax of [1, 2]) {
    await context.test(`${way}, ${inFlightMax} at a time`, { timeout: 20_000 }, async (context) => {
      const path = endpoint(context)
      let isSent = false
      const flood = async (id, socket) => {
        for (const item of [bytes("first"), ...items]) {
          if (!socket.write(framed(KIND.ITEM, id, item))) await new Promise((resolve) => socket.once("drain", resolve))
        }
        isSent = true
        socket.write(framed(KIND.END, id, bytes("end")))
      }
      let flooded
      await peer(context, path, ({ kind, id, payload }, socket) => {
        if (kind !== KIND.REQUEST) return
        if (text(payload) === "all") flooded = flood(id, socket)
        else flooded.then(() => socket.write(framed(KIND.END, id, bytes("yes"))))
      })
      const client = await connect(context, path, { inFlightMax })
      const controller = new AbortController()
      const deadlineMs = way === "overdue" ? 2_000 : undefined
      const stream = client.stream(bytes("all"), { credit: 201, deadlineMs, signal: controller.signal })
      assert.equal(text((await stream.next()).value), "first")
      while (!client.isHeldBack) {
        assert.ok(!isSent && !stream.items.isOver, "all of it is kept, or the deadline passed before")
        await new Promise(setImmediate)
      }
      assert.ok(client.keptBytes < 2 * (4 << 20), `${client.keptBytes} bytes are kept`)
      await goOn(stream, client, controller, flooded)
      assert.equal(client.isHeldBack, false)
      assert.equal(client.keptBytes, 0)
    })
  }
})

test("the server is told of a stream that is given up while its end waits to be taken", async (context) => {
  const path = endpoint(context)
  const asked = {}
  const cancelled = []
  await peer(context, path, ({ kind, id, payload }, socket) => {
    if (kind === KIND.CANCEL) cancelled.push(id)
    if (kind !== KIND.REQUEST) return
    const what = text(payload)
    asked[what] = id
    const end = framed(KIND.END, id, bytes("a name"), { fault: what === "refused" ? FAULTS.REFUSED.number : 0 })
    socket.write(what === "call" ? end : Buffer.concat([framed(KIND.ITEM, id, bytes("item")), end]))
  })
  const client = await connect(context, path)
  const controller = new AbortController()
  const { signal } = controller
  const leave = (stream) => stream.return()
  const ways = {
    left: leave,
    thrown: (stream) => assert.rejects(stream.throw(new Error("enough")), { message: "enough" }),
    // Neither what was taken is given up, nor a refusal, nor what nobody is connected to hear.
    taken: async (stream) => assert.equal(text((await stream.next()).value), "a name"),
    refused: leave,
    aborted: async (stream) => {
      const reason = new Error("enough")
      controller.abort(reason)
      await assert.rejects(stream.next(), reason)
      assert.equal((await stream.next()).done, true)
    },
    closed: () => client.close(),
  }
  for (const [way, end] of Object.entries(ways)) {
    const stream = client.stream(bytes(way), way === "closed" ? undefined : { signal })
    assert.equal(text((await stream.next()).value), "item")
    while (!stream.items.isOver) await new Promise(setImmediate)
    // Its slot names another call by now.
    await client.call(bytes("call"))
    await end(stream)
    assert.equal(getEventListeners(signal, "abort").length, 0, way)
    await stream.return()
    if (way !== "closed") await client.call(bytes("call"))
  }
  assert.deepEqual(cancelled, [asked.left, asked.thrown, asked.aborted])
})

test("a signal drops what a stream that failed left to be taken, and is what is told then", async (context) => {
  const path = endpoint(context)
  await serve(context, path, async (_frame, reply) => {
    for (const item of ["first", "second"]) await reply.item(bytes(item))
    reply.fail("OVERLOADED", "too much")
  })
  const client = await connect(context, path)
  const controller = new AbortController()
  const stream = client.stream(bytes("go"), { signal: controller.signal })
  assert.equal(text((await stream.next()).value), "first")
  while (!stream.items.isOver) await new Promise(setImmediate)
  const reason = new Error("enough")
  controller.abort(reason)
  await assert.rejects(stream.next(), reason)
  assert.equal((await stream.next()).done, true)
})

test("a stream that is given up without a reason does not look complete", async (context) => {
  const path = endpoint(context)
  await serve(context, path, async (_frame, reply) => {
    await reply.item(bytes("first"))
    await new Promise(() => {})
  }, { drainGraceMs: 1 })
  const client = await connect(context, path)
  const controller = new AbortController()
  const stream = client.stream(bytes("go"), { signal: controller.signal })
  assert.equal(text((await stream.next()).value), "first")
  controller.abort(null)
  await assert.rejects(stream.next(), (reason) => reason === null)
  assert.equal((await stream.next()).done, true)
})
