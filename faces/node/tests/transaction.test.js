"use strict"

const assert = require("node:assert/strict")
const test = require("node:test")
const { folder, open, parse, row, store, text } = require("./helpers.js")

const texts = (log) => [...log.query()].map((entry) => text(entry.data))

for (const durability of ["memory", "os", "sync"]) {
  test(`${durability}: a transaction over two logs is there as a whole, each log's last entry marked`, async (context) => {
    const opened = store(context, { durability })
    const [a, b] = [opened.log("a"), opened.log("b")]
    a.append("before")
    const answer = await opened.transaction(
      async (transaction) => {
        transaction.append(a, "one")
        transaction.append(b, "beside")
        await null
        transaction.append(a, "two")
        assert.deepEqual(texts(b), [])
        return 7
      },
      { time: 5 },
    )
    assert.equal(answer, 7)
    assert.deepEqual([...a.query()].map(row).slice(1), [[5, 6, false, "one"], [5, 9, true, "two"]])
    assert.deepEqual([...b.query()].map(row), [[5, 0, true, "beside"]])
    assert.equal(texts(a)[0], "before", "what was appended before comes before")
  })
}

test("its time is that at which it was begun", async (context) => {
  const opened = store(context)
  const log = opened.log("a")
  const transaction = opened.transaction()
  const ahead = Date.now() + 2
  while (Date.now() < ahead);
  log.appendSync("meanwhile")
  transaction.append(log, "begun before")
  await transaction.commit()
  const [meanwhile, begun] = [...log.query()].map(({ time }) => time)
  assert.ok(begun < meanwhile && begun > (ahead - 60_000) * 1000)
})

test("a function that fails aborts, and its error is the caller's", async (context) => {
  const opened = store(context)
  const log = opened.log("a")
  const failing = opened.transaction((transaction) => {
    transaction.append(log, "never")
    throw new RangeError("no")
  })
  await assert.rejects(failing, RangeError)
  assert.deepEqual(texts(log), [])
})

test("one that was committed or aborted takes nothing more", async (context) => {
  const opened = store(context)
  const log = opened.log("a")
  const committed = opened.transaction()
  committed.append(log, "x")
  assert.equal(committed.count, 1)
  await committed.commit()
  const aborted = opened.transaction()
  aborted.append(log, "y")
  aborted.abort()
  for (const over of [committed, aborted]) {
    assert.throws(() => over.append(log, "z"), { code: "TRANSACTION_OVER" })
    await assert.rejects(over.commit(), { code: "TRANSACTION_OVER" })
  }
  assert.deepEqual(texts(log), ["x"])
})

test("an empty one is nothing, one too large is refused whole, a foreign log is no part of it", async (context) => {
  const [opened, other] = [store(context), store(context)]
  const log = opened.log("a")
  await opened.transaction(() => {})
  const large = opened.transaction()
  // As much as there is room for, but for what a commit says of itself.
  for (let n = 0; n < 6; n++) large.append(log, Buffer.alloc(10_880))
  await assert.rejects(large.commit(), { code: "TOO_LARGE", message: /65472/ })
  assert.throws(() => opened.transaction().append(other.log("a"), "x"), { code: "BAD_ARGUMENT" })
  assert.deepEqual(texts(log), [])
})

test("one that grows beyond what a commit takes is refused the entry, and goes on without it", async (context) => {
  const opened = store(context)
  const log = opened.log("a")
  const transaction = opened.transaction()
  const grow = (data) => {
    for (let n = 0; n < 100; n++) transaction.append(log, data)
  }
  for (const data of [Buffer.alloc(10_000), "x".repeat(10_000)]) {
    assert.throws(() => grow(data), { code: "TOO_LARGE", message: /fit into no commit, which takes less than 65536/ })
    assert.equal(transaction.count, 6)
  }
  // A text is measured, and not taken for the most it might be.
  transaction.append(log, "y".repeat(3_000))
  await transaction.commit()
  assert.deepEqual([...log.query()].map(({ data }) => data.length), [10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 3_000])
})

test("entries of many logs, among each other, come into the log that each is of", async (context) => {
  const opened = store(context, { segmentBytesMax: 1 << 20 })
  const logs = Array.from({ length: 1_000 }, (_, n) => opened.log(`log ${n}`))
  await opened.transaction((transaction) => {
    for (const round of ["first", "second"]) logs.forEach((log, n) => transaction.append(log, `${round} ${n}`))
  })
  logs.forEach((log, n) => assert.deepEqual(texts(log), [`first ${n}`, `second ${n}`]))
})

test("one over more logs than a commit may be to is refused as too large", async (context) => {
  const opened = store(context, { segmentBytesMax: 16 << 20 })
  const transaction = opened.transaction()
  for (let n = 0; n < 65_536; n++) transaction.append(opened.log(`log ${n}`), "x")
  await assert.rejects(transaction.commit(), { code: "TOO_LARGE", message: /65536 logs/ })
  assert.deepEqual(texts(opened.log("log 0")), [])
})

test("what was appended in the same turn comes before what is committed in it", async (context) => {
  const opened = store(context)
  const log = opened.log("a")
  const transaction = opened.transaction()
  transaction.append(log, "third")
  const appended = [log.append("first"), log.append("second")]
  await transaction.commit()
  assert.deepEqual(await Promise.all(appended), [0, 5])
  assert.deepEqual(texts(log), ["first", "second", "third"])
})

for (const how of ["commit", "appendSync", "appendMany"]) {
  test(`what was appended to other logs comes in front of ${how}`, async (context) => {
    const path = folder(context)
    const opened = open(path, { durability: "os" })
    const [first, second] = ["first", "second"].map((name) => opened.log(name))
    const appended = first.append("before")
    if (how === "appendSync") second.appendSync("behind")
    else if (how === "appendMany") await second.appendMany(["behind"])
    else {
      const transaction = opened.transaction()
      transaction.append(second, "behind")
      await transaction.commit()
    }
    await appended
    await opened.close()
    const said = []
    for await (const piece of parse(path)) if (piece.piece === "frame" && piece.kind === "data") said.push(text(piece.payload))
    assert.deepEqual(said, ["before", "behind"])
  })
}
