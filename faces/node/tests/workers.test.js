"use strict"

// Threads read while another writes, closes and destroys. They check every entry; none may crash.

const assert = require("node:assert/strict")
const { once } = require("node:events")
const test = require("node:test")
const { setTimeout: sleep } = require("node:timers/promises")
const { Worker, isMainThread, parentPort, workerData } = require("node:worker_threads")
const { after, folder, open, store } = require("./helpers.js")

const WORKERS = 4

/** An entry of number n: its time, and bytes that follow from it. */
const payload = (n) => Buffer.alloc(1 + (n % 300), n % 251)

function check(entry) {
  const { data, time } = entry
  if (data.length !== 1 + (time % 300)) throw new Error(`entry ${time} has ${data.length} bytes`)
  for (const byte of data) if (byte !== time % 251) throw new Error(`entry ${time} holds ${byte}`)
}

function read({ path, options }) {
  const log = open(path, options).log("a")
  const cursor = log.cursor()
  let [seen, queries, stop] = [0, 0, false]
  parentPort.on("message", () => (stop = true))
  parentPort.postMessage("open")
  const turn = () => {
    try {
      while (cursor.next()) {
        check(cursor)
        if (cursor.time !== seen) throw new Error(`entry ${cursor.time} where ${seen} was expected`)
        seen++
      }
      for (let n = 0; n < 50; n++) {
        const start = Math.floor((seen * n) / 50)
        let next = start
        for (const entry of log.query({ start, end: start + 20, lazy: n % 2 === 0 })) {
          check(entry)
          if (entry.time !== next++) throw new Error(`entry ${entry.time} where ${next - 1} was expected`)
        }
        if (next !== Math.min(start + 20, seen) && next < seen) throw new Error(`the query from ${start} ended at ${next}`)
        queries++
      }
    } catch (error) {
      parentPort.postMessage({ seen, queries, code: error.code, message: error.message })
      parentPort.close()
      return
    }
    if (stop) {
      parentPort.postMessage({ seen, queries, code: "STOPPED" })
      parentPort.close()
    } else setImmediate(turn)
  }
  turn()
}

async function crowd(context, path, options) {
  const workers = Array.from({ length: WORKERS }, () => new Worker(__filename, { workerData: { path, options } }))
  for (const worker of workers) after(context, () => worker.terminate())
  await Promise.all(workers.map((worker) => once(worker, "message")))
  const outcomes = workers.map(async (worker) => (await once(worker, "message"))[0])
  return { workers, outcomes }
}

async function write(log, count) {
  for (let n = 0; n < count; n += 50) {
    for (let m = n; m < n + 50; m++) log.append(payload(m), { time: m })
    await sleep(0)
  }
}

if (isMainThread) {
  for (const durability of ["memory", "os"]) {
    const options = { durability, segmentBytesMin: 4096, segmentBytesMax: 1 << 20 }

    test(`${durability}: threads follow a writer over many segments and miss nothing`, async (context) => {
      const path = durability === "memory" ? "crowd" : folder(context)
      const opened = store(context, { path, ...options })
      const { workers, outcomes } = await crowd(context, path, options)
      await write(opened.log("a"), 20_000)
      for (const worker of workers) worker.postMessage("stop")
      for (const outcome of await Promise.all(outcomes)) {
        assert.equal(outcome.code, "STOPPED", outcome.message)
        assert.ok(outcome.seen === 20_000 && outcome.queries > 0, JSON.stringify(outcome))
      }
    })

    test(`${durability}: a store is destroyed under its readers, who are told`, async (context) => {
      for (let round = 0; round < 4; round++) {
        const path = durability === "memory" ? `crowd ${round}` : folder(context)
        const opened = open(path, options)
        const { outcomes } = await crowd(context, path, options)
        await write(opened.log("a"), 500 * round)
        await opened.destroy()
        for (const outcome of await Promise.all(outcomes)) assert.equal(outcome.code, "CLOSED", outcome.message)
      }
    })
  }

  test("threads append to one log: everything is there once, each thread's in order", async (context) => {
    const options = { durability: "os", segmentBytesMin: 4096 }
    const path = folder(context)
    const opened = store(context, { path, ...options })
    const workers = Array.from({ length: 3 }, (_, id) => new Worker(__filename, { workerData: { path, options, id } }))
    await Promise.all(workers.map((worker) => once(worker, "exit")))
    const next = [0, 0, 0]
    for (const { data } of opened.log("a").query()) {
      const [id, n] = [data[0], data[1] + data[2] * 256]
      assert.equal(n, next[id]++)
    }
    assert.deepEqual(next, [2_000, 2_000, 2_000])
  })

  test("a thread that is ended in the middle leaves the store to the others", async (context) => {
    const path = folder(context)
    const options = { durability: "sync", segmentBytesMin: 4096 }
    const opened = store(context, { path, ...options })
    for (let round = 0; round < 5; round++) {
      const worker = new Worker(__filename, { workerData: { path, options, id: 0 } })
      await once(worker, "online")
      await sleep(20 * round)
      await worker.terminate()
      await opened.log("b").append(`round ${round}`)
    }
    assert.equal([...opened.log("b").query()].length, 5)
  })
} else if (workerData.id === undefined) {
  read(workerData)
} else {
  const { path, options, id } = workerData
  const opened = open(path, options)
  const log = opened.log("a")
  const run = async () => {
    for (let n = 0; n < 2_000; n++) {
      const appended = log.append(Uint8Array.of(id, n & 255, n >> 8))
      if (n % 10 === 0) await appended
    }
    await opened.close()
  }
  run()
}
