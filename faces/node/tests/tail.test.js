"use strict"

const assert = require("node:assert/strict")
const { once } = require("node:events")
const { spawn } = require("node:child_process")
const { setTimeout: sleep } = require("node:timers/promises")
const test = require("node:test")
const { drain, folder, store, text } = require("./helpers.js")

async function take(tail, count) {
  const found = []
  for await (const entry of tail) {
    found.push(text(entry.data))
    if (found.length === count) break
  }
  return found
}

for (const durability of ["memory", "os", "sync"]) {
  test(`${durability}: a tail sleeps until there is something, and takes it in order`, async (context) => {
    const log = store(context, { durability }).log("a")
    log.appendSync("before")
    const taken = take(log.tail(), 30)
    for (let n = 0; n < 30; n++) {
      log.append(`entry ${n}`)
      if (n % 3 === 0) await sleep(1)
    }
    assert.deepEqual(await taken, Array.from({ length: 30 }, (_, n) => `entry ${n}`))
  })
}

test("a tail that says where to begin takes what is there first", async (context) => {
  const log = store(context).log("a")
  for (const time of [1, 2, 3]) log.appendSync(`entry ${time}`, { time })
  const taken = take(log.tail({ start: 2 }), 3)
  await sleep(5)
  log.appendSync("entry 4", { time: 4 })
  assert.deepEqual(await taken, ["entry 2", "entry 3", "entry 4"])
})

test("a tail with an end wakes for an entry whose time goes back", async (context) => {
  const log = store(context).log("a")
  const tail = log.tail({ start: 0, end: 100 })
  log.appendSync("too late", { time: 200 })
  const asleep = tail.next()
  log.appendSync("late", { time: 60 })
  assert.equal(text((await asleep).value.data), "late")
  await tail.return()
})

for (const words of [{ end: 50 }, { start: 0, end: 50 }, { exact: 10, end: 50 }]) {
  test(`a tail with an end hears that its log is gone (${JSON.stringify(words)})`, async (context) => {
    const opened = store(context, { durability: "os" })
    const log = opened.log("a")
    for (const time of [10, 200]) log.appendSync(`entry ${time}`, { time })
    const tail = log.tail({ offset: words.start === undefined && words.exact === undefined ? 0 : undefined, ...words })
    assert.equal(text((await tail.next()).value.data), "entry 10")
    // It may hear of it before the purge says that it is done.
    const told = assert.rejects(tail.next(), { code: "DELETED" })
    log.appendSync("too late", { time: 300 })
    opened.log("other").appendSync("x", { time: 300 })
    await opened.purge({ log: "a", destroy: true })
    await told
    assert.deepEqual(await tail.next(), { value: undefined, done: true })
  })
}

test("a cursor with an end hears of what came late before its log went", async (context) => {
  const opened = store(context, { durability: "os" })
  const log = opened.log("a")
  for (const time of [10, 200]) log.appendSync(`entry ${time}`, { time })
  const cursor = log.cursor({ start: 0, end: 50 })
  assert.deepEqual(drain(cursor).map(([time]) => time), [10])
  assert.deepEqual(drain(cursor), [])
  log.appendSync("late", { time: 20 })
  // What stays keeps the file.
  opened.log("other").appendSync("stays")
  await opened.purge({ log: "a", destroy: true })
  assert.ok(cursor.next())
  assert.equal(cursor.time, 20)
  assert.throws(() => drain(cursor), { code: "DELETED" })
  assert.equal(cursor.ended, "deleted")
})

test("many tails of several logs wake for what is theirs", async (context) => {
  const opened = store(context, { durability: "os" })
  const logs = ["a", "b", "c"].map((name) => opened.log(name))
  const taken = logs.flatMap((log) => [take(log.tail(), 5), take(log.tail(), 5)])
  for (let n = 0; n < 5; n++) {
    for (const log of logs) await log.append(`${log.name}${n}`)
  }
  const expected = logs.flatMap(({ name }) => Array(2).fill(Array.from({ length: 5 }, (_, n) => `${name}${n}`)))
  assert.deepEqual(await Promise.all(taken), expected)
})

test("return() ends a sleep", async (context) => {
  const tail = store(context).log("a").tail()
  const asleep = tail.next()
  await tail.return()
  assert.deepEqual(await asleep, { value: undefined, done: true })
  assert.deepEqual(await tail.next(), { value: undefined, done: true })
})

test("a signal ends a sleep with its reason, and a tail that has not begun", async (context) => {
  const log = store(context).log("a")
  const abort = new AbortController()
  const refused = assert.rejects(take(log.tail({}, { signal: abort.signal }), 1), { message: "enough" })
  await sleep(2)
  abort.abort(new Error("enough"))
  await refused
  await assert.rejects(take(log.tail({}, { signal: abort.signal }), 1), { message: "enough" })
})

test("a signal that comes after the end changes nothing", async (context) => {
  const over = { value: undefined, done: true }
  const ends = {
    returned: (tail) => tail.return(),
    closed: async (tail, opened) => {
      await opened.purge({ log: "a", destroy: true })
      await assert.rejects(tail.next(), { code: "DELETED" })
    },
  }
  for (const end of Object.values(ends)) {
    const opened = store(context)
    const abort = new AbortController()
    const tail = opened.log("a").tail({}, { signal: abort.signal })
    await end(tail, opened)
    abort.abort(new Error("late"))
    assert.deepEqual(await tail.next(), over)
  }
})

test("a signal's reason is told once", async (context) => {
  const log = store(context).log("a")
  const abort = new AbortController()
  const tails = [log.tail({}, { signal: abort.signal })]
  abort.abort(new Error("enough"))
  tails.push(log.tail({}, { signal: abort.signal }))
  for (const tail of tails) {
    await assert.rejects(tail.next(), { message: "enough" })
    assert.deepEqual(await tail.next(), { value: undefined, done: true })
  }
  const left = log.tail({}, { signal: abort.signal })
  await left.return()
  assert.deepEqual(await left.next(), { value: undefined, done: true })
})

test("several calls of next() are answered in order", async (context) => {
  const log = store(context).log("a")
  const tail = log.tail()
  const calls = [tail.next(), tail.next(), tail.next()]
  await Promise.all(["one", "two", "three"].map((data) => log.append(data)))
  const answers = await Promise.all(calls)
  assert.deepEqual(answers.map(({ value }) => text(value.data)), ["one", "two", "three"])
  await tail.return()
})

test("a store that closes ends the sleep of its tails, and says why", async (context) => {
  const opened = store(context)
  const refused = assert.rejects(take(opened.log("a").tail(), 1), { code: "CLOSED" })
  await sleep(2)
  await opened.close()
  await refused
})

for (const refused of ["bell", "arm"]) {
  test(`who cannot be woken is told, and may ask again (${refused})`, async (context) => {
    const opened = store(context, { durability: "sync" })
    const log = opened.log("a")
    log.appendSync("before")
    const { view } = opened
    const { opening } = view
    let refusals = 2
    const refuse = () => {
      if (refusals-- > 0) throw new Error(JSON.stringify({ code: "IO", message: "cannot start a thread" }))
    }
    view.opening = {
      bell(ring) {
        if (refused === "bell") refuse()
        const bell = opening.bell(ring)
        return { hold: (held) => bell.hold(held), arm: () => (refused === "arm" && refuse(), bell.arm()) }
      },
    }
    const tail = log.tail()
    await assert.rejects(tail.next(), { name: "ThalwegError", code: "IO", message: "cannot start a thread" })
    assert.deepEqual(await tail.next(), { value: undefined, done: true })
    // It was written, and nobody can say when it lasts: not what a refused append says.
    const outcomes = []
    opened.waits.persisted(Infinity, (error) => outcomes.push([error.code, error.outcome]))
    assert.deepEqual(outcomes, [["IO", "unknown"]])
    const taken = take(log.tail(), 1)
    const appended = log.append("after")
    view.opening = opening
    assert.deepEqual(await taken, ["after"])
    assert.equal(await appended, 6)
  })
}

/** Runs a program to its end; its exit code and what it printed. */
async function run(program, ...words) {
  const child = spawn(process.execPath, ["-e", program, ...words], { stdio: ["ignore", "pipe", "inherit"] })
  let printed = ""
  child.stdout.on("data", (data) => (printed += data))
  const [code] = await once(child, "exit")
  return { code, printed }
}

const OPEN = `const { open } = require(${JSON.stringify(process.env.THALWEG_PACKAGE ?? require.resolve(".."))})
const log = open(process.argv[1], { durability: "os" }).log("a")
`

test("a tail that nobody awaits does not keep a process alive, and one that is awaited does", async (context) => {
  const path = folder(context)
  const idle = await run(`${OPEN} const tail = log.tail(); log.append("x").then(() => tail.next()).then(() => console.log("took"))`, path)
  assert.deepEqual(idle, { code: 0, printed: "took\n" })
  const asleep = `${OPEN} log.tail().next().then(({ value }) => console.log("took", value.data.length))
    setTimeout(() => log.append("later"), 50).unref()
    setTimeout(() => process.exit(3), 60000).unref()`
  assert.deepEqual(await run(asleep, path), { code: 0, printed: "took 5\n" })
})
