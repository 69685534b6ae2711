// The embedded log beside LMDB through Node.js: `node bench.mjs --directory PATH [--entries N] [--pairs N]
// [--milliseconds N | --turns N] [--only GROUP,GROUP] [--sides SIDE,SIDE]`. Prints a line of JSON for each
// measurement, as the other languages' programs do. Readers and writers under measurement are worker threads; the
// writer beside readers is this thread. Within a pair every side has its turn before the next pair begins.

import { mkdirSync, rmSync } from "node:fs"
import { join } from "node:path"
import { parseArgs } from "node:util"
import { Worker } from "node:worker_threads"
import { GROUPS } from "./groups.mjs"
import { Peer } from "./peer.mjs"
import { expected, Sum, TICK_ENTRIES } from "./workload.mjs"

const { values: options } = parseArgs({
  options: {
    directory: { type: "string" },
    entries: { type: "string", default: "1000000" },
    pairs: { type: "string", default: "5" },
    milliseconds: { type: "string", default: "250" },
    turns: { type: "string", default: "0" },
    only: { type: "string", default: "" },
    sides: { type: "string", default: "" },
  },
})
const entries = Number(options.entries)
const until = { milliseconds: Number(options.milliseconds), turns: Number(options.turns) }
const listed = (list, name) => list === "" || list.split(",").includes(name)

/** The threads of one side of a group: each way of reading has its own, compiled for it alone as in a program that uses it. */
class Crew {
  constructor(size) {
    this.go = new SharedArrayBuffer(4)
    const made = () => new Worker(new URL("worker.mjs", import.meta.url), { workerData: { go: this.go } })
    this.workers = Array.from({ length: size }, made)
  }

  /** What the next message of every worker says. */
  answers(count) {
    const answer = (worker) =>
      new Promise((resolve, reject) => {
        worker.once("message", (message) =>
          message.problem ? reject(new Error(message.problem)) : resolve(message),
        )
        worker.once("error", reject)
      }).finally(() => worker.removeAllListeners("error"))
    return Promise.all(this.workers.slice(0, count).map(answer))
  }

  /** Lets so many threads repeat a task's turn, while this one does what is `beside` until they are done. */
  async measure(task, threads, beside) {
    const ready = this.answers(threads)
    this.workers.slice(0, threads).forEach((worker, thread) => worker.postMessage({ ...task, thread, threads }))
    await ready
    const done = this.answers(threads)
    const state = { over: false }
    const settled = done.finally(() => (state.over = true))
    const before = process.cpuUsage()
    Atomics.add(new Int32Array(this.go), 0, 1)
    Atomics.notify(new Int32Array(this.go), 0)
    await Promise.all([settled, beside(state)])
    const used = process.cpuUsage(before)
    return { measured: (await done).map((message) => message.measured), used: used.user + used.system }
  }

  /** Lets every thread close its stores. */
  async forget() {
    const forgotten = this.answers(this.workers.length)
    this.workers.forEach((worker) => worker.postMessage({ forget: true }))
    await forgotten
  }

  async end() {
    await this.forget()
    await Promise.all(this.workers.map((worker) => worker.terminate()))
  }
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))

/** A store that this thread writes and the crew reads. */
class Subject {
  static async create(store, directory, count) {
    mkdirSync(directory, { recursive: true })
    const Kind = store === "ours" ? (await import("./ours.mjs")).Ours : Peer
    const subject = new Subject(Kind.open(directory), directory)
    await subject.open.fill(count)
    subject.entries = count
    return subject
  }

  constructor(open, directory) {
    this.open = open
    this.directory = directory
  }

  async tick() {
    await this.open.tick(this.entries)
    this.entries += TICK_ENTRIES
  }

  /** What the writer does meanwhile: nothing, 50 entries each millisecond, or 50 entries again and again. */
  writer(kind) {
    return async (state) => {
      let due = performance.now()
      while (kind && !state.over) {
        await this.tick()
        due += 1
        if (kind === "paced") await pause(Math.max(0, due - performance.now()))
        else await new Promise(setImmediate)
      }
    }
  }
}

function print({ group, threads }, side, pair, { measured, used }) {
  const total = new Sum()
  let [operations, rate] = [0, 0]
  for (const { operations: count, seconds, sum } of measured) {
    operations += count
    rate += count / seconds
    total.add(sum)
  }
  const line = {
    work: `${group}/${threads}`,
    side,
    pair,
    operations,
    per_second: rate,
    processor_us: used / Math.max(operations, 1),
    entries: total.entries,
    digest: total.times,
    fixed: until.turns > 0,
  }
  console.log(JSON.stringify(line))
  return operations
}

/** Everything that was appended is there. */
function verify(subject, count, side) {
  subject.open.reader()[side.store === "ours" ? "eager" : "scan"]().check(expected(0, count), ["lengths"], side.side)
}

/** A store that was filled and closed. */
async function closed(store) {
  const subject = await Subject.create(store, join(options.directory, `closed-${store}`), entries)
  await subject.open.close()
  return subject
}

/** Measures a side of a group with so many threads. */
async function measure(crew, group, side, threads, pair) {
  const apart = join(options.directory, "apart")
  const kind = group.closed ? `closed ${side.store}` : side.store
  const subject = group.fresh ? await Subject.create(side.store, apart, 0) : kept.get(kind)
  const { directory, entries: held } = subject
  // Places are chosen where both sides have the same entries, however many a writer added since.
  const known = ["ranges", "seeks", "iterators"].includes(group.pattern) ? entries : held
  const task = { ...side, pattern: group.pattern, closed: group.closed === true, directory, entries: known, until }
  const result = await crew.measure(task, threads, subject.writer(group.writer))
  const operations = print({ group: group.group, threads }, side.side, pair, result)
  if (group.fresh) {
    if (!group.writer) verify(subject, operations, side)
    await crew.forget()
    await subject.open.close()
    rmSync(apart, { recursive: true })
  }
}

const wanted = GROUPS.filter(({ group }) => listed(options.only, group))
const kept = new Map()
const needs = (store, group) =>
  group.sides.some((side) => side.store === store && listed(options.sides, side.side)) && !group.fresh
for (const store of ["ours", "peer"]) {
  if (wanted.some((group) => group.closed && needs(store, group))) kept.set(`closed ${store}`, await closed(store))
  if (wanted.some((group) => !group.closed && needs(store, group))) {
    kept.set(store, await Subject.create(store, join(options.directory, store), entries))
  }
}
for (const group of wanted) {
  const sides = group.sides.filter(({ side }) => listed(options.sides, side))
  const crews = sides.map(() => new Crew(Math.max(...group.threads)))
  for (let pair = 0; pair < Number(options.pairs); pair += 1) {
    for (const threads of group.threads) {
      for (const [index, side] of sides.entries()) await measure(crews[index], group, side, threads, pair)
    }
  }
  for (const crew of crews) await crew.end()
}
process.exit(0)
