"use strict"

const assert = require("node:assert/strict")
const { spawnSync } = require("node:child_process")
const { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } = require("node:fs")
const { join, resolve } = require("node:path")
const test = require("node:test")
const { ThalwegError, after, folder, open, store, text, verify } = require("./helpers.js")

/** Everything that can be asked of a store, its log, a cursor and a transaction; of these two in the middle of their work. */
const calls = ({ opened, log, cursor, transaction, names, entries, lazy }) => ({
  log: () => opened.log("a"),
  "log that is new": () => opened.log("b"),
  logs: () => opened.logs(),
  newLogs: () => opened.newLogs(),
  "a new name": () => names.next(),
  transaction: () => opened.transaction(),
  transact: () => opened.transaction(() => assert.fail("it has no store to work in")),
  purge: () => opened.purge(),
  rotate: () => opened.rotate(),
  damage: () => opened.damage(),
  stats: () => opened.stats(),
  verify: () => opened.verify(),
  backup: () => opened.backup(join(opened.path, "backup")),
  maintain: () => opened.maintain(),
  destroy: () => opened.destroy(),
  appendSync: () => log.appendSync("x"),
  append: () => log.append("x"),
  appendMany: () => log.appendMany(["x"]),
  appendTimed: () => log.appendTimed([[1, "x"]]),
  query: () => log.query(),
  cursor: () => log.cursor({ start: 1 }),
  tail: () => log.tail(),
  next: () => cursor.next() && cursor.next(),
  seek: () => cursor.seek({ tail: true }),
  "an entry": () => entries.next() && entries.next(),
  "a lazy entry": () => lazy.next() && lazy.next(),
  "append of a transaction": () => transaction.append(log, "x"),
  commit: () => transaction.commit(),
})

/** Those of them that are not to throw: who promises rejects. */
const PROMISED = ["a new name", "transact", "purge", "verify", "backup", "maintain", "destroy", "append", "appendMany", "appendTimed", "commit"]

function handles(opened) {
  const log = opened.log("a")
  log.appendSync("kept")
  const [entries, lazy, cursor] = [log.query(), log.query({ lazy: true }), log.cursor()]
  for (const reader of [entries, lazy, cursor]) reader.next()
  const transaction = opened.transaction()
  transaction.append(log, "x")
  return { opened, log, cursor, transaction, names: opened.newLogs(), entries, lazy }
}

async function refuses(handles) {
  for (const [name, call] of Object.entries(calls(handles))) {
    const refused = PROMISED.includes(name) ? call() : (async () => call())()
    await assert.rejects(refused, { name: "ThalwegError", code: "CLOSED" }, name)
  }
}

for (const durability of ["memory", "os", "sync"]) {
  for (const end of ["close", "destroy"]) {
    test(`${durability}: after ${end}() every handle says that the store is closed, and what was read stays readable`, async (context) => {
      const opened = store(context, { durability })
      const held = handles(opened)
      const [entry] = held.log.query()
      await opened[end]()
      await refuses(held)
      assert.equal(text(entry.data), "kept", "its map lives as long as the view")
      assert.deepEqual([held.transaction.count, held.cursor.ended], [1, null])
      await opened.close()
    })
  }
}

test("every handle of one who closed a store says so, though others have it open", async (context) => {
  const opened = store(context, { durability: "os" })
  const other = store(context, { path: opened.path, durability: "os" })
  const held = handles(opened)
  await opened.close()
  await refuses(held)
  assert.equal([...other.log("a").query()].length, 1)
})

test("a store is shared by all who open it, and closed with the last of them", async (context) => {
  const path = folder(context)
  const [first, second] = [store(context, { path, durability: "os" }), store(context, { path, durability: "os" })]
  first.log("a").appendSync("from the first")
  const cursor = second.log("a").cursor()
  assert.ok(cursor.next())
  await first.close()
  assert.throws(() => first.log("a"), { code: "CLOSED" })
  await assert.rejects(first.maintain(), { code: "CLOSED" })
  assert.equal(await second.log("a").append("from the second"), 14)
  assert.ok(cursor.next())
  await second.close()
  const third = store(context, { path, durability: "os" })
  assert.equal([...third.log("a").query()].length, 2)
})

test("who only reads is told that there is no store in the same words, whatever is there instead", async (context) => {
  const path = folder(context)
  writeFileSync(join(path, "file"), "no store")
  const missing = join(path, "missing")
  assert.throws(() => open(missing, { readOnly: true }), {
    code: "NOT_A_STORE",
    message: `${missing} is not part of a store: there is no control file`,
  })
  assert.throws(() => open(path, { readOnly: true }), { code: "NOT_A_STORE" })
  for (const name of ["file", "file/within"]) {
    const message = new RegExp(`^cannot open ${join(path, name)}/control: Not a directory`)
    assert.throws(() => open(join(path, name), { readOnly: true }), { code: "IO", message }, name)
  }
  assert.throws(() => open("", { readOnly: true }), { code: "BAD_ARGUMENT", message: /not empty/ })
  assert.deepEqual(readdirSync(path), ["file"])
})

test("a path at which another directory is by now opens no store that is elsewhere", async (context) => {
  const path = join(folder(context), "here")
  const first = open(path, { durability: "os" })
  first.log("a").appendSync("first")
  renameSync(path, `${path}-moved`)
  mkdirSync(path)
  assert.throws(() => open(path, { durability: "os" }), { code: "CONFLICT" })
  await first.close()
  const second = open(path, { durability: "os" })
  after(context, () => second.close())
  assert.deepEqual(second.logs(), [])
})

test("a store that is closed can be opened again at once, whatever still holds its maps", async (context) => {
  const path = folder(context)
  const kept = []
  for (let n = 0; n < 5; n++) {
    const opened = open(path, { durability: "os" })
    const log = opened.log("a")
    log.appendSync(`round ${n}`)
    kept.push(log, log.cursor(), log.query().next().value)
    await opened.close()
  }
  assert.equal(text(kept.at(-1).data), "round 0", "the oldest entry")
})

test("what was appended and not awaited is there after close()", async (context) => {
  for (const durability of ["os", "sync"]) {
    const path = folder(context)
    const opened = open(path, { durability })
    const appended = [opened.log("a").append("one"), opened.log("b").append("two")]
    await opened.close()
    assert.deepEqual(await Promise.all(appended), [0, 0])
    assert.deepEqual(store(context, { path, durability }).logs(), ["a", "b"])
  }
})

for (const end of ["close", "destroy"]) {
  test(`${end}() waits for what is under way, so that the store can be opened again at once`, async (context) => {
    const [path, to] = [folder(context), join(folder(context), "backup")]
    const opened = open(path, { durability: "os" })
    const entries = 64
    for (let n = 0; n < entries; n++) opened.log("a").appendSync(Buffer.alloc(1 << 20, n))
    const underWay = [opened.purge({ before: 1 }), opened.backup(to), opened.maintain()]
    await opened[end]()
    const again = store(context, { path, durability: "os" })
    await Promise.all(underWay)
    assert.equal([...store(context, { path: to, durability: "os" }).log("a").query()].length, entries)
    assert.deepEqual(again.logs(), end === "close" ? ["a"] : [])
  })
}

for (const end of ["close", "destroy"]) {
  test(`who closes a store again waits until ${end}() is done`, async (context) => {
    const path = folder(context)
    const opened = open(path, { durability: "os" })
    for (let n = 0; n < 64; n++) opened.log("a").appendSync(Buffer.alloc(1 << 20, n))
    const first = opened[end]()
    await opened.close()
    const again = store(context, { path, durability: "os" })
    await first
    assert.deepEqual(again.logs(), end === "close" ? ["a"] : [])
    await opened.close()
  })
}

test("a store that was moved does all that it does about files where it is by now", async (context) => {
  const path = folder(context)
  const [to, away] = [`${path}-backup`, `${path}-away`]
  for (const left of [to, away]) context.after(() => rmSync(left, { recursive: true, force: true }))
  const opened = open(path, { durability: "os" })
  opened.log("early").appendSync("entry")
  await opened.backup(to)
  renameSync(path, away)
  renameSync(to, path)
  const others = readdirSync(path)
  opened.log("late").appendSync("entry")
  opened.rotate()
  await opened.maintain()
  assert.equal((await opened.verify()).logs, 2)
  await opened.destroy()
  assert.deepEqual([readdirSync(path), existsSync(away)], [others, true])
  assert.deepEqual(readdirSync(away), [])
  assert.deepEqual(store(context, { path, durability: "os" }).logs(), ["early"])
})

test("who closes their opening beside another's destroy() waits until the store is gone", async (context) => {
  const path = folder(context)
  const [first, second] = [open(path, { durability: "os" }), open(path, { durability: "os" })]
  for (let n = 0; n < 64; n++) first.log("a").appendSync(Buffer.alloc(1 << 20, n))
  const destroyed = first.destroy()
  await second.close()
  assert.deepEqual(store(context, { path, durability: "os" }).logs(), [])
  await destroyed
})

test("a store is kept by itself as it grows, whichever opening appends", async (context) => {
  const options = { durability: "os", segmentBytesMax: 4 << 20, retainBytes: 8 << 20, path: folder(context) }
  const opened = [store(context, options), store(context, options)]
  // No one of them appends as much as makes it due.
  for (let n = 0; n < 80; n++) opened[n % 2].log("a").appendSync(Buffer.alloc(1 << 20))
  const deadline = Date.now() + 60_000
  while (opened[0].stats().liveBytes > 40 << 20) {
    assert.ok(Date.now() < deadline, "nothing goes")
    await new Promise(setImmediate)
  }
})

test("what was written is not refused because housekeeping finds the store closed", async (context) => {
  const path = folder(context)
  const [opened, other] = [open(path, { durability: "os" }), open(path, { durability: "os" })]
  const log = opened.log("a")
  for (let n = 0; n < 63; n++) log.appendSync(Buffer.alloc(1 << 20))
  const transaction = opened.transaction()
  // It is due, and the store is closed as soon as it begins.
  transaction.append(log, Buffer.alloc(2 << 20))
  const committed = transaction.commit()
  const destroyed = other.destroy()
  await committed
  await destroyed
})

test("destroy() closes it for everybody, removes its files and leaves those of others", async (context) => {
  const path = folder(context)
  const [opened, other] = [open(path, { durability: "os" }), open(path, { durability: "os" })]
  const held = handles(other)
  writeFileSync(join(path, "mine"), "keep")
  await opened.destroy()
  await refuses(held)
  assert.deepEqual(readdirSync(path), ["mine"])
  await other.close()
  const anew = store(context, { path, durability: "os" })
  assert.deepEqual(anew.logs(), [])
  const alone = folder(context)
  await open(alone, { durability: "os" }).destroy()
  assert.equal(existsSync(alone), false)
})

test("destroy() removes nothing of a store that is opened while it is under way", async (context) => {
  const path = folder(context)
  const opened = open(path, { durability: "os", segmentBytesMin: 4096, segmentBytesMax: 8192 })
  for (let n = 0; n < 500; n++) opened.log("old").appendSync(Buffer.alloc(4000))
  const destroyed = opened.destroy()
  let again
  // The event loop hears of nothing meanwhile: the first opening that can gets in.
  while (again === undefined) {
    try {
      again = open(path, { durability: "os" })
    } catch (error) {
      assert.equal(error.code, "CLOSED")
    }
  }
  again.log("new").appendSync("stays")
  await destroyed
  await again.close()
  const third = store(context, { path, durability: "os" })
  assert.deepEqual(third.logs(), ["new"])
  assert.equal(text(third.log("new").query().next().value.data), "stays")
})

test("a store in memory lives under its name for as long as somebody has it open", async (context) => {
  const [first, second] = [store(context, { path: "shared" }), store(context, { path: "shared" })]
  first.log("a").appendSync("x")
  assert.equal([...second.log("a").query()].length, 1)
  await first.close()
  await second.close()
  assert.deepEqual(store(context, { path: "shared" }).logs(), [])
})

test("a store that is open in another way is refused, by what differs; what is not asked for is as it likes", (context) => {
  const path = folder(context)
  const has = { durability: "os", segmentBytesMin: 8192, segmentBytesMax: 65536, retainUs: 5_000_000, retainBytes: 1 << 20 }
  const first = open(path, has)
  after(context, () => first.close())
  const others = { segmentBytesMin: 4096, segmentBytesMax: 131072, retainUs: 1, retainBytes: 0, rotateAfterUs: 7 }
  for (const [name, value] of Object.entries(others)) {
    const says = name === "rotateAfterUs" ? "no rotateAfterUs" : `${name} of ${has[name]}`
    const message = `the store is open in this process with ${says}`
    assert.throws(() => open(path, { durability: "os", [name]: value }), { code: "CONFLICT", message })
  }
  const message = 'the store is open in this process with durability "os"'
  assert.throws(() => open(path, { durability: "sync" }), { code: "CONFLICT", message })
  const lefts = [undefined, {}, { durability: undefined }, { durability: null }, { retainUs: null }, { segmentBytesMin: 8192 }]
  for (const asked of [...lefts, has, { durability: "os" }, { durability: "os", retainUs: 5_000_000 }]) {
    const again = open(path, asked)
    after(context, () => again.close())
    assert.equal(again.durability, "os", JSON.stringify(asked))
  }
  const usual = open(folder(context))
  after(context, () => usual.close())
  assert.equal(usual.durability, "sync")
  // Who only reads goes by none of them.
  for (const durability of ["sync", "os"]) {
    const reader = open(path, { readOnly: true, durability, retainUs: 9 })
    after(context, () => reader.close())
  }
})

test("what opening found is told: how the store was left, and what is damaged", async (context) => {
  const path = folder(context)
  const options = { durability: "os", segmentBytesMin: 4096, segmentBytesMax: 8192 }
  const first = open(path, options)
  assert.deepEqual(first.recovery, {
    logs: 0, checkpoint: null, batches: 0, clean: false, discardedBytes: 0, damage: [], unnamed: null,
  })
  for (let n = 0; n < 200; n++) first.log("a").appendSync(Buffer.alloc(100, 7), { time: n })
  await first.close()
  const second = open(path, options)
  assert.ok(second.recovery.clean && second.recovery.logs === 1 && second.recovery.checkpoint > 0)
  assert.deepEqual(second.damage(), [])
  assert.equal(second.recovery, second.recovery)
  await second.close()
  assert.equal(open("none", { durability: "memory" }).recovery, null)
  rmSync(join(path, "segment-0000000003"))
  for (const readOnly of [true, false]) {
    const third = store(context, { ...options, path, readOnly })
    const [span, ...more] = third.damage()
    assert.deepEqual(more, [])
    assert.equal(span.file, "segment-0000000003")
    assert.ok(span.from >= 3 * 2 ** 32 && span.from < 4 * 2 ** 32 && span.resumes > span.from)
    assert.match(span.message, /segment-0000000003 is missing, or has lost its header, touching 1 log/)
    if (readOnly) assert.equal(third.recovery, null)
    else assert.deepEqual(third.recovery.damage, [span])
  }
})

test("a store that could not be opened leaves no directory behind that was made for it", (context) => {
  const path = folder(context)
  for (const at of ["new", "deep/er/new", "deep/new/../also"]) {
    assert.throws(() => open(join(path, at), { segmentBytesMin: 1 }), { code: "BAD_ARGUMENT" })
    assert.deepEqual(readdirSync(path), [], at)
  }
  mkdirSync(join(path, "there"))
  assert.throws(() => open(join(path, "there/new"), { segmentBytesMin: 1 }), { code: "BAD_ARGUMENT" })
  assert.throws(() => open(join(path, "there"), { segmentBytesMin: 1 }), { code: "BAD_ARGUMENT" })
  assert.deepEqual(readdirSync(path, { recursive: true }), ["there"])
})

test("a directory that its file system does not take is refused, and not asked for without end", () => {
  for (const path of ["/proc/thalweg", "/proc/thalweg/deeper"]) {
    const program = `require(${JSON.stringify(process.env.THALWEG_PACKAGE ?? resolve(__dirname, ".."))}).open(${JSON.stringify(path)})`
    const { status, stderr } = spawnSync(process.execPath, ["-e", program], { encoding: "utf8", timeout: 60_000 })
    assert.equal(status, 1, stderr)
    assert.match(stderr, /ThalwegError: .*ENOENT.*'\/proc\/thalweg'/)
  }
})

test("options that mean nothing are refused", (context) => {
  const path = folder(context)
  assert.throws(() => open(path, { durability: "most" }), { code: "BAD_ARGUMENT" })
  for (const name of ["segmentBytesMin", "segmentBytesMax", "retainUs", "retainBytes", "rotateAfterUs"]) {
    for (const value of [NaN, -1, 0.5, Infinity, 2 ** 60, "1000", 1000n]) {
      assert.throws(() => open(path, { durability: "os", [name]: value }), { code: "BAD_ARGUMENT" }, `${name}: ${value}`)
    }
  }
  assert.throws(() => open(7), { code: "BAD_ARGUMENT" })
  assert.throws(() => open(path, { readOnly: true }), { code: "NOT_A_STORE" })
  assert.throws(() => open(join(path, "nowhere"), { readOnly: true }), { code: "NOT_A_STORE" })
  const file = join(path, "file")
  writeFileSync(file, "")
  assert.throws(() => open(file), { code: "IO" })
  assert.throws(() => open(file), ThalwegError)
})

test("verify() of a store in memory finds no files, whatever its name stands for on the disk", async (context) => {
  const opened = open(folder(context), { durability: "memory" })
  opened.log("a").appendSync("entry")
  const nothing = { segments: 0, batches: 0, logs: 0, bytes: 0, checkpoints: 0, end: 0, tornBytes: 0, damage: [] }
  assert.deepEqual(await opened.verify(), nothing)
  await opened.close()
})

test("verify() finds a store whole, open or closed, and a flipped bit", async (context) => {
  const { closeSync, openSync, readSync, writeSync } = require("node:fs")
  const path = folder(context)
  const opened = open(path, { durability: "os" })
  const { id } = opened.log("a")
  for (let n = 0; n < 100; n++) opened.log("a").appendSync(`entry ${n}`)
  const inUse = await opened.verify()
  assert.deepEqual([inUse.damage, inUse.checkpoints, inUse.end], [[], 0, opened.stats().stagedEnd])
  await opened.close()
  const whole = await verify(path)
  assert.deepEqual([whole.logs, whole.damage], [1, []])
  assert.ok(whole.checkpoints > 0 && whole.end >= inUse.end, "closing it writes a checkpoint")
  assert.ok(whole.batches > 100)
  const file = openSync(join(path, "segment-0000000001"), "r+")
  after(context, () => closeSync(file))
  const byte = Buffer.alloc(1)
  readSync(file, byte, 0, 1, 4000)
  writeSync(file, Buffer.of(byte[0] ^ 1), 0, 1, 4000)
  const { damage } = await verify(path)
  assert.equal(damage.length, 1)
  const [{ message, file: name, from, resumes, logs }] = damage
  assert.match(message, /segment-0000000001 is damaged/)
  assert.deepEqual([name, Math.floor(from / 2 ** 32)], ["segment-0000000001", 1])
  assert.ok(resumes > from && (logs === null || logs.includes(id)))
})
