"use strict"

// Stores as files: backed up while they are written, put back, taken apart.

const assert = require("node:assert/strict")
const { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } = require("node:fs")
const { join } = require("node:path")
const test = require("node:test")
const { Worker } = require("node:worker_threads")
const { backup, folder, open, parse, restore, row, store, text, verify } = require("./helpers.js")

const small = { durability: "os", segmentBytesMin: 4096, segmentBytesMax: 8192 }

/** Appends entries that carry their number. */
function fill(log, first, end) {
  for (let n = first; n < end; n++) log.appendSync(`entry ${n}`.padEnd(100), { time: n })
}

const numbers = (log) => [...log.query()].map((entry) => Number.parseInt(text(entry.data).slice(6), 10))
const range = (first, end) => Array.from({ length: end - first }, (_, n) => first + n)

async function pieces(path) {
  const all = []
  for await (const piece of parse(path)) all.push(piece)
  return all
}

test("a backup holds what was appended before, and neither is changed by what becomes of the other", async (context) => {
  const path = folder(context)
  const [from, to, again] = ["store", "backup", "again"].map((name) => join(path, name))
  const opened = store(context, { path: from, ...small })
  fill(opened.log("a"), 0, 200)
  opened.log("a").append("entry 200", { time: 200 }).catch(() => {})
  const taken = await opened.backup(to)
  assert.equal(taken.end, opened.stats().stagedEnd, "what was staged in this turn is in it")
  assert.deepEqual([taken.copied, taken.attempts, taken.linked > 1], [1, 1, true])
  assert.ok(taken.copiedBytes > 0 && taken.copiedBytes < 8192)
  fill(opened.log("a"), 201, 400)
  await opened.destroy()
  assert.deepEqual((await verify(to)).damage, [])

  assert.ok((await restore(to, again)).end >= taken.end)
  const back = store(context, { path: again, ...small })
  assert.deepEqual(numbers(back.log("a")), range(0, 201))
  fill(back.log("a"), 201, 300)
  const third = join(path, "third")
  await restore(to, third)
  assert.deepEqual(numbers(store(context, { path: third, ...small }).log("a")), range(0, 201))
})

test("a store that another thread or nobody has open is backed up by its path", async (context) => {
  const path = folder(context)
  const from = join(path, "store")
  const opened = store(context, { path: from, ...small })
  fill(opened.log("a"), 0, 50)
  const writer = new Worker(
    `const { open } = require(process.env.THALWEG_PACKAGE ?? ${JSON.stringify(join(__dirname, ".."))})
     const { parentPort, workerData } = require("node:worker_threads")
     const opened = open(workerData, ${JSON.stringify(small)})
     const log = opened.log("a")
     let stopped = false
     parentPort.once("message", () => { stopped = true })
     const turn = (n) => {
       if (stopped) return opened.close()
       if (n >= 3000) return setImmediate(turn, n)
       for (let end = n + 20; n < end; n++) log.appendSync(("entry " + n).padEnd(100), { time: n })
       setImmediate(turn, n)
     }
     turn(50)`,
    { eval: true, workerData: from },
  )
  for (let round = 0; round < 6; round++) {
    const to = join(path, `backup ${round}`)
    const { end } = round % 2 === 0 ? await backup(from, to) : await opened.backup(to)
    const copy = open(to, small)
    const seen = numbers(copy.log("a"))
    assert.deepEqual(seen, range(0, seen.length))
    assert.ok(seen.length >= 50)
    assert.equal(copy.stats().stagedEnd, end)
    await copy.close()
  }
  const ended = new Promise((resolve) => writer.once("exit", resolve))
  writer.postMessage("stop")
  await ended
  await opened.close()
  const reader = store(context, { path: from, readOnly: true })
  const { end } = await reader.backup(join(path, "attached"))
  assert.equal((await backup(from, join(path, "closed"))).end, end)
})

test("nothing is written over, nothing damaged is put back, and what failed leaves nothing", async (context) => {
  const path = folder(context)
  const at = (name) => join(path, name)
  const opened = store(context, { path: at("store"), ...small })
  fill(opened.log("a"), 0, 200)
  mkdirSync(at("full"))
  writeFileSync(join(at("full"), "mine"), "precious")
  await assert.rejects(opened.backup(at("full")), { name: "ThalwegError", code: "OCCUPIED" })
  await assert.rejects(opened.backup(at("store")), { code: "OCCUPIED" })
  assert.deepEqual(readdirSync(at("full")), ["mine"])
  await assert.rejects(backup(at("nowhere"), at("empty")), { code: /^(NOT_A_STORE|IO)$/ })
  await assert.rejects(backup(at("full"), at("empty")), { code: "NOT_A_STORE" })
  await assert.rejects(restore(at("store"), at("empty")), { code: "NOT_CLOSED" })
  assert.ok(!readdirSync(path).includes("empty"), "what was made for it goes again")
  await assert.rejects(opened.backup(join(at("full"), "mine")), { code: "IO" })
  await assert.rejects(store(context).backup(at("empty")), { code: "IN_MEMORY" })
  for (const wrong of [7, "", undefined]) {
    await assert.rejects(opened.backup(wrong), { code: "BAD_ARGUMENT" })
    await assert.rejects(backup(wrong, at("empty")), { code: "BAD_ARGUMENT" })
    await assert.rejects(restore(at("store"), wrong), { code: "BAD_ARGUMENT" })
    assert.throws(() => parse(wrong), { code: "BAD_ARGUMENT" })
  }
  await opened.backup(at("backup"))
  const file = join(at("backup"), "segment-0000000002")
  const bytes = readFileSync(file)
  bytes[1000] ^= 1
  // Another file: this one is a link of the store's.
  rmSync(file)
  writeFileSync(file, bytes)
  await assert.rejects(restore(at("backup"), at("empty")), (error) => {
    assert.deepEqual([error.code, error.file], ["DAMAGED", "segment-0000000002"])
    assert.ok(error.resumes > error.from && error.from < 2 * 2 ** 32 + 1000)
    return true
  })
  assert.ok(!existsSync(at("empty")))
  await opened.close()
  await assert.rejects(opened.backup(at("late")), { code: "CLOSED" })
  assert.ok(!existsSync(at("late")))
})

test("parse() shows every piece of a store or of one segment in order", async (context) => {
  const path = folder(context)
  const opened = store(context, { path, ...small })
  fill(opened.log("a"), 0, 300)
  opened.log("b").appendSync(Uint8Array.of(0, 255), { time: 7 })
  const entries = [...opened.log("a").query()].map(row)
  await opened.close()
  const all = await pieces(path)
  const data = all.filter((piece) => piece.piece === "frame" && piece.kind === "data")
  const of = (name) => data.filter((frame) => frame.name === name)
  assert.deepEqual(of("a").map(({ time, offset, last, payload }) => [time, offset, last, text(payload)]), entries)
  assert.deepEqual(of("b").map(({ time, payload }) => [time, [...payload]]), [[7, [0, 255]]])
  assert.ok(all.some((piece) => piece.piece === "frame" && piece.kind === "create" && piece.name === "b"))
  const segments = all.filter((piece) => piece.piece === "segment")
  const report = await verify(path)
  assert.equal(segments.length, report.segments)
  assert.match(segments[0].storeId, /^[0-9a-f]{16}$/)
  const batches = all.filter((piece) => piece.piece === "batch")
  assert.ok(batches.every((batch) => batch.linked && batch.whole && batch.touched.length >= 1))
  assert.equal(batches.length, report.batches)
  assert.equal(batches.reduce((sum, batch) => sum + batch.bytes, 0), report.bytes)
  assert.equal(all.filter((piece) => piece.piece === "damage").length, 0)
  assert.deepEqual(all.at(-1).piece, "end")
  const one = await pieces(join(path, segments[1].file))
  const begins = all.indexOf(segments[1])
  const ends = all.indexOf(segments[2] ?? null)
  const unnamed = (piece) => ({ ...piece, name: null })
  assert.deepEqual(one.map(unnamed), all.slice(begins, ends < 0 ? undefined : ends).map(unnamed))
})

test("parse() names what is damaged and goes on behind it, and behind a file that is no use", async (context) => {
  const path = folder(context)
  const opened = store(context, { path, ...small })
  fill(opened.log("a"), 0, 200)
  await opened.close()
  const file = join(path, "segment-0000000002")
  const bytes = readFileSync(file)
  const hit = Number.parseInt(bytes.subarray(bytes.indexOf("entry ", 1000) + 6).toString(), 10)
  bytes[bytes.indexOf("entry ", 1000) + 50] ^= 4
  writeFileSync(file, bytes)
  const all = await pieces(path)
  const damage = all.filter((piece) => piece.piece === "damage")
  assert.deepEqual(damage.map(({ file, logs }) => [file, logs?.length]), [["segment-0000000002", 1]])
  assert.match(damage[0].message, /segment-0000000002 is damaged/)
  assert.ok(damage[0].resumes > damage[0].from)
  const shown = all.filter((piece) => piece.kind === "data").map((frame) => frame.time)
  assert.deepEqual(shown, range(0, 200).filter((n) => n !== hit))

  const third = join(path, "segment-0000000003")
  rmSync(third)
  mkdirSync(third)
  const walk = parse(path)
  const [times, failures] = [[], []]
  for (let over = false; !over; ) {
    try {
      const { value, done } = await walk.next()
      over = done
      if (value?.kind === "data") times.push(value.time)
    } catch (error) {
      failures.push(error.code)
    }
  }
  assert.deepEqual(failures, ["IO"])
  assert.ok(times.length > 100 && times.at(-1) === 199)
  assert.deepEqual(await walk.next(), { value: undefined, done: true })
})

test("parse() is left early, asked many at once, and refuses what is no store", async (context) => {
  const path = folder(context)
  const opened = store(context, { path, ...small })
  fill(opened.log("a"), 0, 300)
  await opened.close()
  const left = parse(path)
  for await (const piece of left) if (piece.kind === "data") break
  assert.equal((await left.next()).done, true)
  const rushed = parse(path)
  const answers = await Promise.all(Array.from({ length: 700 }, () => rushed.next()))
  assert.deepEqual(
    answers.filter(({ value }) => value?.kind === "data").map(({ value }) => value.time),
    (await pieces(path)).slice(0, 700).filter(({ kind }) => kind === "data").map(({ time }) => time),
  )
  await assert.rejects(parse(join(path, "nowhere")).next(), { code: "IO" })
  const empty = folder(context)
  writeFileSync(join(empty, "other"), "")
  await assert.rejects(parse(empty).next(), { code: "NOT_A_STORE" })
})

test("stats() count batches and the memory of indexes", (context) => {
  const opened = store(context, { ...small, segmentBytesMin: 65536, segmentBytesMax: 65536 })
  const log = opened.log("a")
  const before = opened.stats()
  fill(log, 0, 100)
  const after = opened.stats()
  assert.deepEqual([after.batches - before.batches, after.entries - before.entries], [100, 100])
  assert.ok(after.batchBytes - before.batchBytes > 10_000)
  assert.equal([...log.query({ start: 50 })].length, 50)
  const { indexBytes, segmentBytes } = opened.stats()
  assert.ok(indexBytes > 0 && indexBytes <= segmentBytes / 100, `${indexBytes} of ${segmentBytes}`)
})
