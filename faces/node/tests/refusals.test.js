"use strict"

// What must not be done is refused, by name and whole: nothing of it is there, and the store is as good as before.

const assert = require("node:assert/strict")
const { execFileSync, spawn, spawnSync } = require("node:child_process")
const { once } = require("node:events")
const fs = require("node:fs")
const { join } = require("node:path")
const test = require("node:test")
const { setImmediate: turn } = require("node:timers/promises")
const { after, folder, open, store, text } = require("./helpers.js")

const texts = (log) => [...log.query()].map(({ data }) => text(data))
const lengths = (log) => [...log.query()].map(({ data }) => data.length)

/** Programs that run in a process of their own: `node refusals.test.js NAME PATH`. */
const programs = { hold, full, unwritable }
const program = (name, path) => [__filename, name, path]

/** Has the store open until nobody talks to it any more. */
function hold(path) {
  open(path, { durability: "os" })
  process.stdout.write("ready\n")
  process.stdin.resume()
}

/** Writes until there is no room, of which this process has little. */
async function full(path) {
  const options = { durability: process.env.DURABILITY, segmentBytesMin: 16 << 10, segmentBytesMax: 1 << 20 }
  const opened = open(path, options)
  const [log, other] = [opened.log("a"), opened.log("b")]
  const large = () => {
    const transaction = opened.transaction()
    for (const to of [log, other, log]) transaction.append(to, Buffer.alloc(50_000, 7))
    return transaction.commit()
  }
  await log.append("kept")
  await assert.rejects(large(), { code: "FULL" })
  assert.deepEqual([lengths(log), lengths(other)], [[4], []], "nothing of it is there")
  await assert.rejects(log.append(Buffer.alloc(100_000)), { code: "FULL" })
  await log.append("small")
  await assert.rejects(large(), { code: "FULL" })
  assert.ok(opened.stats().failures >= 2)
  // There is room again.
  execFileSync("prlimit", ["--pid", `${process.pid}`, "--fsize=unlimited"])
  await large()
  assert.deepEqual([lengths(log), lengths(other)], [[4, 5, 50_000, 50_000], [50_000]])
  await opened.close()
  const again = open(path, options)
  assert.deepEqual([lengths(again.log("a")), lengths(again.log("b"))], [[4, 5, 50_000, 50_000], [50_000]])
  await again.close()
}

/** Opens a store where it may not write anything. */
function unwritable(path) {
  if (process.getuid() === 0) process.seteuid(65534)
  const before = files(path)
  assert.throws(() => open(path, { durability: "os" }), { code: "IO" })
  assert.throws(() => open(join(path, "new"), { durability: "os" }), { code: "IO" })
  assert.deepEqual(files(path), before)
  const log = open(path, { readOnly: true }).log("a")
  assert.deepEqual(texts(log), ["kept"])
  assert.throws(() => log.appendSync("x"), { code: "READ_ONLY" })
  assert.deepEqual(files(path), before)
}

/** What is in a directory, byte by byte. */
const files = (path) => fs.readdirSync(path).map((name) => [name, fs.readFileSync(join(path, name))])

function tests() {
  for (const durability of ["memory", "os", "sync"]) {
    test(`${durability}: an append on a closing store says so, and opens no other`, async (context) => {
      const path = durability === "memory" ? "closing" : folder(context)
      const opened = open(path, { durability })
      const log = opened.log("a")
      const [before, transaction] = [log.append("before"), opened.transaction()]
      transaction.append(log, "x")
      const closing = opened.close()
      await assert.rejects(log.append("late"), { code: "CLOSED" })
      assert.throws(() => log.appendSync("late"), { code: "CLOSED" })
      await assert.rejects(transaction.commit(), { code: "CLOSED" })
      await closing
      assert.equal(await before, 0)
      await assert.rejects(log.append("late"), { code: "CLOSED" })
      const again = store(context, { path, durability })
      assert.deepEqual(texts(again.log("a")), durability === "memory" ? [] : ["before"])
      await assert.rejects(log.append("late"), { code: "CLOSED" }, "the other one is another")
    })
  }

  test("a reader whose store is closed says so, however it reads", async (context) => {
    const opened = store(context)
    const log = opened.log("a")
    for (let n = 0; n < 3; n++) log.appendSync("x")
    const [entries, lazy, cursor, tail] = [log.query(), log.query({ lazy: true }), log.cursor(), log.tail({ start: 0 })]
    for (const reader of [entries, lazy, cursor]) assert.ok(reader.next())
    await tail.next()
    const left = log.tail()
    await left.return()
    await opened.close()
    // What the run at hand holds may still come, and nothing behind it.
    for (const reader of [entries, lazy, cursor]) {
      assert.throws(() => {
        for (let n = 0; n < 10; n++) reader.next()
      }, { code: "CLOSED" })
    }
    await assert.rejects(async () => {
      for (let n = 0; n < 10; n++) await tail.next()
    }, { code: "CLOSED" })
    assert.deepEqual(await left.next(), { value: undefined, done: true }, "one that was left has ended")
  })

  test("a log that nobody made is unknown to a purge, and to a neighbour", async (context) => {
    const path = folder(context)
    const opened = store(context, { path, durability: "os" })
    opened.log("a").appendSync("x")
    await assert.rejects(opened.purge({ log: "b" }), { code: "NO_LOG" })
    await assert.rejects(opened.purge({ log: "b", destroy: true }), { code: "NO_LOG" })
    assert.throws(() => store(context, { path, readOnly: true }).log("b"), { code: "NO_LOG" })
    assert.deepEqual(opened.logs(), ["a"])
  })

  test("names with separators or control characters are refused", (context) => {
    const opened = store(context)
    for (const name of ["", ".", "..", "a/b", "/", "a\\b", "a\nb", "a\0b", "\x7f", "x".repeat(70_000)]) {
      assert.throws(() => opened.log(name), { code: "BAD_NAME" }, JSON.stringify(name.slice(0, 9)))
    }
    assert.deepEqual(opened.logs(), [])
  })

  test("an entry over the limit is refused, and what stands beside it in its turn is not lost", async (context) => {
    const log = store(context).log("a")
    const [before, large] = [log.append("before"), log.append(Buffer.alloc(1 << 20))]
    assert.equal(await before, 0)
    await assert.rejects(large, { code: "TOO_LARGE" })
    assert.throws(() => log.appendSync(Buffer.alloc(1 << 20)), { code: "TOO_LARGE" })
    await log.append("behind")
    assert.deepEqual(texts(log), ["before", "behind"])
  })

  test("no log is destroyed under a transaction that is pending on it", async (context) => {
    const opened = store(context, { durability: "os" })
    const [log, other] = [opened.log("a"), opened.log("b")]
    log.appendSync("x")
    const transaction = opened.transaction()
    transaction.append(log, "y")
    transaction.append(log, "z")
    assert.equal(opened.stats().transactions, 1)
    await assert.rejects(opened.purge({ log: "a", destroy: true }), { code: "PENDING" })
    await assert.rejects(opened.purge({ destroy: true }), { code: "PENDING" })
    assert.deepEqual(opened.logs(), ["a", "b"])
    await opened.purge({ log: "b", destroy: true })
    await transaction.commit()
    assert.deepEqual(texts(log), ["x", "y", "z"])
    assert.equal(opened.stats().transactions, 0)
    const aborted = opened.transaction()
    aborted.append(log, "never")
    aborted.abort()
    assert.throws(() => opened.transaction().append(other, "x") ?? other.appendSync("x"), { code: "DELETED" })
    assert.equal((await opened.purge({ log: "a", destroy: true }))[0].destroyed, true)
  })

  test("a transaction that nobody has any more holds no log", async (context) => {
    require("node:v8").setFlagsFromString("--expose-gc")
    const collect = require("node:vm").runInNewContext("gc")
    const opened = store(context, { durability: "os" })
    const log = opened.log("a")
    ;(() => opened.transaction().append(log, "x"))()
    assert.equal(opened.stats().transactions, 1)
    while (opened.stats().transactions > 0) {
      collect()
      await turn()
    }
    assert.equal((await opened.purge({ destroy: true })).length, 1)
  })

  test("a second writer is refused, and told who has the store open", async (context) => {
    const path = folder(context)
    const holder = spawn(process.execPath, program("hold", path), { stdio: ["pipe", "pipe", "inherit"] })
    await once(holder.stdout, "data")
    assert.throws(() => open(path, { durability: "os" }), (error) => {
      assert.equal(error.code, "HELD")
      assert.match(error.message, new RegExp(`\\b${holder.pid}\\b`))
      return true
    })
    holder.kill()
    await once(holder, "exit")
    store(context, { path, durability: "os" }).log("a").appendSync("x")
  })

  test("a store of a newer version is refused, and left as it is", async (context) => {
    const path = folder(context)
    const opened = open(path, { durability: "os" })
    opened.log("a").appendSync("x")
    await opened.close()
    const control = fs.readFileSync(join(path, "control"))
    control[8] = 99
    fs.writeFileSync(join(path, "control"), control)
    const before = files(path)
    assert.throws(() => open(path, { durability: "os" }), { code: "NEWER" })
    assert.throws(() => open(path, { readOnly: true }), { code: "NEWER" })
    assert.deepEqual(files(path), before)
  })

  test("a directory that may only be read is refused to writers, left as it is, and read", async (context) => {
    const path = folder(context)
    const opened = open(path, { durability: "os" })
    opened.log("a").appendSync("kept")
    await opened.close()
    const isRoot = process.getuid() === 0
    for (const name of fs.readdirSync(path)) {
      fs.chmodSync(join(path, name), 0o444)
      if (isRoot) fs.chownSync(join(path, name), 65534, 65534)
    }
    if (isRoot) fs.chownSync(path, 65534, 65534)
    fs.chmodSync(path, 0o555)
    const { status, stderr } = spawnSync(process.execPath, program("unwritable", path), { encoding: "utf8" })
    fs.chmodSync(path, 0o755)
    assert.equal(status, 0, stderr)
  })

  for (const durability of ["os", "sync"]) {
    test(`${durability}: a disk that fills in the middle of a transaction leaves nothing of it`, (context) => {
      const path = folder(context)
      // No file may be larger than this, for now.
      const within = ["--fsize=65536:unlimited", process.execPath, ...program("full", path)]
      const env = { ...process.env, DURABILITY: durability }
      const { status, error, stderr } = spawnSync("prlimit", within, { env, encoding: "utf8" })
      assert.equal(status, 0, `${error} ${stderr}`)
    })
  }

  test("a sync that fails fails what waits for it, and the store takes nothing more until it is opened again", async (context) => {
    const path = folder(context)
    const opened = open(path, { durability: "sync" })
    const [log, other] = [opened.log("a"), opened.log("b")]
    await Promise.all([log.append("kept"), other.append("kept")])
    assert.equal(opened.stats().failed, false)
    failSyncs(path)
    const transaction = opened.transaction()
    transaction.append(log, "x")
    transaction.append(other, "y")
    const outcomes = await Promise.allSettled([transaction.commit(), log.append("z")])
    assert.deepEqual(outcomes.map(({ reason }) => reason?.code), ["FAILED", "FAILED"])
    assert.equal(outcomes[0].reason.outcome, "unknown")
    assert.equal(opened.stats().failed, true)
    await assert.rejects(log.append("more"), { code: "FAILED" })
    assert.throws(() => log.appendSync("more"), { code: "FAILED" })
    assert.deepEqual([texts(log), texts(other)], [["kept"], ["kept"]], "what is read is what is durable")
    await assert.rejects(opened.close(), { code: "IO" })
    const again = store(context, { path, durability: "sync" })
    const [left, right] = [texts(again.log("a")), texts(again.log("b"))]
    // Whether it lasts is unknown, but not by halves.
    assert.deepEqual([left[0], right[0]], ["kept", "kept"])
    assert.equal(left.includes("x"), right.includes("y"))
    await again.log("a").append("after")
    assert.equal(texts(again.log("a")).at(-1), "after")
  })

  test("an appendSync whose sync fails does not know its outcome, and the next is refused", (context) => {
    const path = folder(context)
    const opened = open(path, { durability: "sync" })
    const log = opened.log("a")
    log.appendSync("kept")
    failSyncs(path)
    assert.throws(() => log.appendSync("perhaps"), { code: "FAILED", outcome: "unknown" })
    assert.throws(() => log.appendSync("more"), ({ code, outcome }) => code === "FAILED" && outcome === undefined)
    after(context, () => assert.rejects(opened.close(), { code: "IO" }))
  })
}

/** Puts in the place of a store's open segments something that cannot be synced. */
function failSyncs(path) {
  for (const name of fs.readdirSync("/proc/self/fd")) {
    let target
    try {
      target = fs.readlinkSync(`/proc/self/fd/${name}`)
    } catch {
      continue
    }
    if (!target.startsWith(join(fs.realpathSync(path), "segment-"))) continue
    fs.closeSync(Number(name))
    const taken = []
    do taken.push(fs.openSync("/dev/null", "r+"))
    while (taken.at(-1) !== Number(name) && taken.length < 100)
    assert.equal(taken.pop(), Number(name))
    for (const other of taken) fs.closeSync(other)
  }
}

const [name, path] = process.argv.slice(2)
if (name in programs) programs[name](path)
else tests()
