"use strict"

// A neighbour process reads what another writes.

const assert = require("node:assert/strict")
const { fork } = require("node:child_process")
const { once } = require("node:events")
const { chmodSync, mkdirSync, readFileSync, readdirSync, renameSync, rmdirSync, truncateSync, writeFileSync } = require("node:fs")
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

  test("who reads along is told that another store is at the path, and reads nothing of it", async (context) => {
    const path = join(folder(context), "store")
    const options = { durability: "os", segmentBytesMin: 4096, segmentBytesMax: 8192 }
    const fill = (log, from, text) => {
      for (let n = from; n < from + 100; n++) log.appendSync(text.padEnd(100), { time: n })
    }
    const first = open(path, options)
    fill(first.log("a"), 0, "first")
    const reader = store(context, { path, readOnly: true })
    const log = reader.log("a")
    const cursor = log.cursor({ start: 90 })
    assert.equal(drain(cursor).length, 10)
    fill(first.log("a"), 100, "first")
    await first.destroy()
    const gone = { code: "IO", message: /is not at .* any more: the store was moved or removed/ }
    assert.throws(() => log.query({ start: 90 }), gone)
    mkdirSync(path)
    assert.throws(() => log.query({ start: 90 }), gone)
    const second = store(context, { path, ...options })
    for (const from of [0, 100, 200]) fill(second.log("a"), from, "second")
    const another = { code: "IO", message: /another store is at .* by now/ }
    for (const query of [{}, { start: 90 }, { start: 150 }, { offset: 0 }]) assert.throws(() => log.query(query), another)
    assert.throws(() => cursor.next(), another)
    assert.throws(() => reader.log("b"), another)
    assert.equal([...store(context, { path, ...options }).log("a").query({ start: 90 })].length, 210)
  })

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

  for (const inItsPlace of [false, true]) {
    const title = `a tail that sleeps is told that its store was ${inItsPlace ? "replaced" : "moved away"}`
    test(title, { timeout: 60_000 }, async (context) => {
      const [path, other] = [folder(context), folder(context)].map((parent) => join(parent, "store"))
      for (const at of [path, other]) {
        const writer = open(at, { durability: "os" })
        writer.log("a").appendSync("before")
        await writer.close()
      }
      const reader = store(context, { path, readOnly: true })
      const log = reader.log("a")
      const gone = { name: "ThalwegError", code: "IO", message: /was moved or removed|another store is at/ }
      const tails = [log.tail(), log.tail(), reader.newLogs()].map((tail) => assert.rejects(tail.next(), gone))
      renameSync(path, `${path}-away`)
      if (inItsPlace) renameSync(other, path)
      await Promise.all(tails)
      // Nobody is left who would ring for it.
      await assert.rejects(log.tail().next(), gone)
    })
  }

  test("who may not write anything of a store reads it, and its tail hears of what comes", async (context) => {
    const path = folder(context)
    const writer = store(context, { path, durability: "os" })
    const log = writer.log("a")
    log.appendSync("before")
    chmodSync(path, 0o755)
    for (const name of readdirSync(path)) chmodSync(join(path, name), 0o644)
    if (process.getuid() !== 0) chmodSync(join(path, "signal"), 0o444)
    const reader = fork(__filename, [path, "reader"])
    after(context, () => reader.kill("SIGKILL"))
    for (const data of ["before", "first", "second"]) {
      const [said] = await once(reader, "message")
      assert.equal(said, data)
      log.appendSync(data === "before" ? "first" : "second")
    }
  })

  test("an entry that reaches behind the visible end is not taken, however that was lowered", async (context) => {
    const path = folder(context)
    const neighbour = await writer(context, path, "os")
    await neighbour.append("a", [[1, "x".repeat(100)], [2, "y".repeat(100)], [3, "z".repeat(100)]])
    await neighbour.append("b", [[4, "w"]])
    await neighbour.append("a", [[5, "v".repeat(100)]])
    await neighbour.kill()
    const file = join(path, "control")
    const control = readFileSync(file)
    const visible = control.readBigUInt64LE(8 * 24)
    for (const [less, whole] of [[0n, 4], [8n, 3], [96n, 3], [120n, 3]]) {
      control.writeBigUInt64LE(visible - less, 8 * 24)
      writeFileSync(file, control)
      const opened = open(path, { readOnly: true })
      for (const query of [{}, { start: 0 }, { offset: 0 }]) {
        const [cursor, rows] = [opened.log("a").cursor(query), []]
        const walk = () => {
          while (cursor.next()) rows.push(text(cursor.data))
        }
        if (less === 0n || less > 104n) walk()
        else assert.throws(walk, { code: "DAMAGED" })
        assert.equal(rows.length, whole, `${less} ${JSON.stringify(query)}`)
        assert.ok(rows.every((data) => data.length === 100))
        if (less > 0n && less <= 104n) assert.equal(cursor.ended, "damaged")
      }
      await opened.close()
    }
  })

  for (const length of [3, 4097, 5001]) {
    test(`a segment that was cut to ${length} bytes is damage, and no other error`, async (context) => {
      const path = folder(context)
      const writer = store(context, { path, durability: "os", segmentBytesMin: 8192, segmentBytesMax: 8192 })
      for (let n = 0; n < 200; n++) writer.log("a").appendSync(Buffer.alloc(100, 7), { time: n })
      await writer.close()
      truncateSync(join(path, "segment-0000000002"), length)
      const opened = store(context, { path, readOnly: true })
      for (const query of [{}, { start: 0 }, { start: 60 }, { offset: 6_000 }]) {
        assert.throws(() => drain(opened.log("a").cursor(query)), { code: "DAMAGED" })
      }
    })
  }

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
} else if (process.argv[3] === "reader") {
  if (process.getuid() === 0) process.seteuid(65534)
  const log = open(process.argv[2], { readOnly: true }).log("a")
  ;(async () => {
    for await (const { data } of log.tail({ offset: 0 })) process.send(text(data))
  })()
} else {
  const [, , path, durability] = process.argv
  const opened = open(path, { durability, segmentBytesMin: 4096, segmentBytesMax: 16384 })
  process.on("message", async ({ name, entries }) => {
    await Promise.all(entries.map(([time, data]) => opened.log(name).append(data, { time })))
    process.send("done")
  })
  process.send("up")
}
