"use strict"

// Whose are the bytes of an entry that were taken into a buffer of their own, when the thread ends that read it: they stay for whoever has
// them. What nobody took goes, and so does what nobody has any more.

const assert = require("node:assert/strict")
const { execFile } = require("node:child_process")
const { once } = require("node:events")
const { readFileSync } = require("node:fs")
const test = require("node:test")
const { setImmediate: turn } = require("node:timers/promises")
const { promisify } = require("node:util")
const v8 = require("node:v8")
const vm = require("node:vm")
const { Worker, isMainThread, parentPort, workerData } = require("node:worker_threads")
const { folder, open, store } = require("./helpers.js")

const OPTIONS = { durability: "os", segmentBytesMin: 64 << 10 }
const THREADS = 5

const maps = (path) => readFileSync("/proc/self/maps", "latin1").split("\n").filter((line) => line.includes(path)).length

/** The bytes that a view shows, in a buffer that a byte stream made of the view's. */
async function taken(data) {
  const stream = new ReadableStream({ type: "bytes", start: (controller) => controller.enqueue(data) })
  const { value } = await stream.getReader().read()
  assert.equal(data.length, 0)
  return value
}

const filled = (opened) => {
  for (let n = 0; n < 20; n++) opened.log("a").appendSync(Buffer.alloc(1000, n))
  return opened
}

const first = (opened) => opened.log("a").query().next().value.data

/** A thread that reads an entry and says so, then ends. */
async function visit(path, takes) {
  const worker = new Worker(__filename, { workerData: { path, takes } })
  const [bytes] = await once(worker, "message")
  await worker.terminate()
  return bytes
}

/** What threads took is read when they have ended: by a process of its own, which would not survive it otherwise. */
async function readOn(path) {
  const opened = filled(open(path, OPTIONS))
  const all = []
  for (let n = 0; n < THREADS; n++) all.push(await visit(path, true))
  for (const bytes of all) assert.deepEqual(Buffer.from(bytes), Buffer.alloc(1000))
  await opened.close()
}

if (!isMainThread) {
  const { path, takes } = workerData
  const data = first(open(path, OPTIONS))
  const say = async () => {
    if (!takes) return parentPort.postMessage(data[0])
    const bytes = await taken(data)
    parentPort.postMessage(bytes, [bytes.buffer])
  }
  say()
  // It has the entry until it is ended.
  parentPort.on("message", () => data)
} else if (process.argv[2] === "read on") {
  readOn(process.argv[3])
} else {
  test("bytes that a byte stream took are read after the thread has ended that they are from", async (context) => {
    await promisify(execFile)(process.execPath, [__filename, "read on", `${folder(context)}/store`])
  })

  test("a thread that ends leaves no map of what it read", async (context) => {
    const path = folder(context)
    filled(store(context, { path, ...OPTIONS }))
    const before = maps(path)
    for (let n = 0; n < THREADS; n++) assert.equal(await visit(path, false), 0)
    assert.equal(maps(path), before)
  })

  test("what a byte stream took is unmapped once nobody has it any more", async (context) => {
    v8.setFlagsFromString("--expose-gc")
    const collect = vm.runInNewContext("gc")
    const path = folder(context)
    const opened = filled(store(context, { path, ...OPTIONS }))
    const before = maps(path)
    await (async () => assert.equal((await taken(first(opened))).length, 1000))()
    // The next entry is lent anew.
    for (let n = 0; n < THREADS; n++) await (async () => assert.equal((await taken(first(opened)))[0], 0))()
    assert.ok(maps(path) > before)
    for (let rounds = 0; rounds < 200 && maps(path) > before + 1; rounds++) {
      collect()
      await turn()
    }
    // But for the last one, which the next entry would be read from.
    assert.ok(maps(path) <= before + 1, `${maps(path)} maps, ${before} before`)
  })
}
