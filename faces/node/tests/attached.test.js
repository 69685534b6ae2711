"use strict"

// Memory that several views lie in is not taken away by one of them, in versions of Node.js too that have what would do it.

const assert = require("node:assert/strict")
const { execFile } = require("node:child_process")
const { join } = require("node:path")
const test = require("node:test")
const { promisify } = require("node:util")
const { folder } = require("./helpers.js")
const { echo, endpoint, serve } = require("./service-helpers.js")

const HOME = process.env.THALWEG_PACKAGE ?? join(__dirname, "..")

// Node.js 20 has neither of them: they are there before the package is loaded, as in later versions.
const SOURCE = `
  const TRANSFERS = ["transfer", "transferToFixedLength"]
  for (const name of TRANSFERS) {
    Object.defineProperty(ArrayBuffer.prototype, name, { value: () => "taken", writable: true, configurable: true })
  }
  const threads = require("node:worker_threads")
  const { markAsUntransferable } = threads
  const marked = new WeakSet()
  threads.markAsUntransferable = (buffer) => {
    marked.add(buffer)
    markAsUntransferable(buffer)
  }
  const { open } = require(${JSON.stringify(HOME)})
  const { Client, SyncClient } = require(${JSON.stringify(join(HOME, "lib/service/index.js"))})
  const [, path, store] = process.argv
  const transferred = (buffer) => TRANSFERS.map((name) => {
    try {
      return buffer[name]()
    } catch (error) {
      return error.name
    }
  })
  const entries = () => {
    const opened = open(store, { durability: "os", segmentBytesMin: 64 << 10 })
    for (let n = 0; n < 100; n++) opened.log("a").appendSync(Buffer.alloc(1000, n))
    const [first, second] = opened.log("a").query()
    return [first.data, second.data]
  }
  const main = async () => {
    const [client, waiting] = [await Client.connect(path), SyncClient.connect(path)]
    const views = {
      frames: await Promise.all([1, 2].map((n) => client.call(Uint8Array.of(n)))),
      "frames that were waited for": [1, 2].map((n) => waiting.call(Uint8Array.of(n))),
      entries: entries(),
      "what has its buffer alone": [new Uint8Array(1)],
    }
    const said = Object.entries(views).map(([what, [first, second]]) => [what, second?.buffer === first.buffer, marked.has(first.buffer), ...transferred(first.buffer)])
    console.log(JSON.stringify(said))
    process.exit()
  }
  main()`

// A map must not be marked: Node.js 24 and later abort at the end of a thread that has one.
test("transfer() of a buffer in which several frames or entries lie is refused", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const { stdout } = await promisify(execFile)(process.execPath, ["-e", SOURCE, path, join(folder(context), "store")])
  assert.deepEqual(JSON.parse(stdout), [
    ["frames", true, true, "TypeError", "TypeError"],
    ["frames that were waited for", true, true, "TypeError", "TypeError"],
    ["entries", true, false, "TypeError", "TypeError"],
    ["what has its buffer alone", false, false, "taken", "taken"],
  ])
})
