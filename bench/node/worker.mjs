// A thread that measures: it opens the stores it is told of, prepares a pattern, waits until all are ready, repeats its
// turn, and says what it did.

import { parentPort, workerData } from "node:worker_threads"
import { prepare } from "./patterns.mjs"
import { Sum } from "./workload.mjs"

const go = new Int32Array(workerData.go)
const stores = new Map()

/** The class of a side's stores. */
async function kind(side) {
  return side === "ours" ? (await import("./ours.mjs")).Ours : (await import("./peer.mjs")).Peer
}

/** The store of a task, opened once in this thread, or what opens one that is to be opened anew in each turn. */
async function store({ store: side, directory, closed }) {
  const Kind = await kind(side)
  if (closed) return () => Kind.open(directory, { readOnly: true })
  if (!stores.has(directory)) stores.set(directory, Kind.open(directory))
  return stores.get(directory)
}

async function measure(task) {
  const turn = prepare(task, await store(task))
  const before = Atomics.load(go, 0)
  parentPort.postMessage({ ready: true })
  Atomics.wait(go, 0, before)
  const { milliseconds, turns } = task.until
  const total = new Sum()
  const since = performance.now()
  let operations = 0
  for (let n = 0; turns ? n < turns : performance.now() - since < milliseconds; n += 1) {
    const done = turn()
    const { operations: more, sum } = done instanceof Promise ? await done : done
    operations += more
    total.add(sum)
  }
  return { operations, seconds: (performance.now() - since) / 1000, sum: total }
}

async function forget() {
  for (const store of stores.values()) await store.close()
  stores.clear()
}

parentPort.on("message", async (message) => {
  try {
    if (message.forget) {
      await forget()
      parentPort.postMessage({ forgotten: true })
    } else {
      parentPort.postMessage({ measured: await measure(message) })
    }
  } catch (problem) {
    parentPort.postMessage({ problem: problem.stack ?? String(problem) })
  }
})
