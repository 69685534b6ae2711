"use strict"

// A neighbour process reads what another writes.

const assert = require("node:assert/strict")
const { fork } = require("node:child_process")
const { once } = require("node:events")
const test = require("node:test")
const { after, drain, folder, open, store, text } = require("./helpers.js")

/** A process that has the store open and appends when it is told to. */
async function writer(context, path, durability) {
  const child = fork(__filename, [path, durability])
  after(context, async () => {
    child.kill("SIGKILL")
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit")
  })
  await once(child, "message")
  return {
    async append(name, entries) {
      child.send({ name, entries })
      await once(child, "message")
    },
    async kill() {
      child.kill("SIGKILL")
      await once(child, "exit")
    },
  }
}

if (process.send === undefined) {
  for (const durability of ["os", "sync"]) {
    test(`${durability}: entries of a neighbour are read as they come, over its segments`, async (context) => {
      const path = folder(context)
      const neighbour = await writer(context, path, durability)
      await neighbour.append("a", [[1, "first"]])
      const opened = store(context, { path, durability, readOnly: true })
      const log = opened.log("a")
      const cursor = log.cursor()
      assert.deepEqual(drain(cursor), [[1, 0, true, "first"]])
      for (let round = 0; round < 10; round++) {
        const entries = Array.from({ length: 100 }, (_, n) => [2 + round * 100 + n, `round ${round}`])
        await neighbour.append("a", entries)
        assert.deepEqual(drain(cursor).map(([time, , , data]) => [time, data]), entries)
        const found = [...log.query({ start: 50 + round * 100, end: 60 + round * 100 })]
        assert.deepEqual(found.map((entry) => entry.time), Array.from({ length: 10 }, (_, n) => 50 + round * 100 + n))
      }
    })
  }

  test("a tail in another process sleeps and wakes", async (context) => {
    const path = folder(context)
    const neighbour = await writer(context, path, "os")
    await neighbour.append("a", [[1, "before"]])
    const tail = store(context, { path, readOnly: true, durability: "os" }).log("a").tail()
    for (let n = 0; n < 300; n++) {
      const next = tail.next()
      await neighbour.append("a", [[2 + n, `entry ${n}`]])
      assert.equal(text((await next).value.data), `entry ${n}`)
    }
    await tail.return()
  })

  test("who reads only may not write, and finds only logs there are", async (context) => {
    const path = folder(context)
    const neighbour = await writer(context, path, "os")
    await neighbour.append("a", [[1, "x"]])
    const opened = store(context, { path, readOnly: true, durability: "os" })
    assert.deepEqual(opened.logs(), ["a"])
    assert.throws(() => opened.log("b"), { code: "NO_LOG" })
    await assert.rejects(opened.log("a").append("x"), { code: "READ_ONLY" })
    assert.throws(() => opened.log("a").appendSync("x"), { code: "READ_ONLY" })
    await assert.rejects(opened.destroy(), { code: "READ_ONLY" })
    assert.throws(() => open(path, { durability: "os" }), { code: "HELD" })
    await neighbour.append("b", [[2, "y"]])
    assert.equal([...opened.log("b").query()].length, 1)
    await neighbour.kill()
    assert.equal([...opened.log("a").query()].length, 1)
  })
} else {
  const [, , path, durability] = process.argv
  const opened = open(path, { durability, segmentBytesMin: 4096, segmentBytesMax: 16384 })
  process.on("message", async ({ name, entries }) => {
    await Promise.all(entries.map(([time, data]) => opened.log(name).append(data, { time })))
    process.send("done")
  })
  process.send("up")
}
