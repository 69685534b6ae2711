"use strict"

// A neighbour process reads what another writes.

const assert = require("node:assert/strict")
const { fork } = require("node:child_process")
const { once } = require("node:events")
const { mkdirSync, readdirSync, renameSync, rmdirSync } = require("node:fs")
const { join } = require("node:path")
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

  test("a log that its writer deleted is no longer what its name stands for", async (context) => {
    const path = folder(context)
    const writer = store(context, { path, durability: "os" })
    const reader = store(context, { path, readOnly: true, durability: "os" })
    const texts = (log) => [...log.query()].map((entry) => text(entry.data))
    for (const name of ["a", "b"]) writer.log(name).appendSync("old")
    const former = reader.log("a")
    assert.deepEqual(texts(former), ["old"])
    assert.equal(reader.log("a"), former)
    await writer.purge({ log: "a", destroy: true })
    assert.throws(() => reader.log("a"), { code: "NO_LOG" })
    writer.log("a").appendSync("new")
    assert.deepEqual(texts(reader.log("a")), ["new"])
  })

  test("segments that cannot be listed are not passed over: it is said, and they are read once they can", (context) => {
    const path = folder(context)
    const writer = store(context, { path, durability: "os" })
    const log = writer.log("a")
    log.appendSync("before")
    const read = store(context, { path, readOnly: true, durability: "os" }).log("a")
    const cursor = read.cursor()
    assert.equal(drain(cursor).length, 1)
    writer.rotate()
    log.appendSync("behind")
    const [newest] = readdirSync(path).filter((name) => name.startsWith("segment-")).sort().reverse()
    renameSync(join(path, newest), join(path, "away"))
    mkdirSync(join(path, newest))
    for (let n = 0; n < 2; n++) {
      assert.throws(() => cursor.next(), { code: "IO" })
      assert.throws(() => read.query(), { code: "IO" })
    }
    rmdirSync(join(path, newest))
    renameSync(join(path, "away"), join(path, newest))
    assert.deepEqual(drain(cursor).map(([, , , data]) => data), ["behind"])
    assert.equal([...read.query()].length, 2)
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
