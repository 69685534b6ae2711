"use strict"

const assert = require("node:assert/strict")
const { mkdtempSync, rmSync, statSync } = require("node:fs")
const { tmpdir } = require("node:os")
const { join } = require("node:path")
// The package as users have it: by its name when it is installed, else the sources.
const thalweg = require(process.env.THALWEG_PACKAGE ?? "..")

const text = (data) => Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString()
const row = (entry) => [entry.time, entry.offset, entry.last, text(entry.data)]

const endings = new WeakMap()

/** Does something after the test: what was begun last is ended first. */
function after(context, end) {
  if (!endings.has(context)) {
    endings.set(context, [])
    context.after(async () => {
      for (const end of endings.get(context).reverse()) await end()
    })
  }
  endings.get(context).push(end)
}

/** A folder that is gone after the test. */
function folder(context) {
  const path = mkdtempSync(join(tmpdir(), "thalweg-"))
  after(context, () => rmSync(path, { recursive: true, force: true }))
  return path
}

let names = 0
/** A store that is closed after the test, of small segments unless the test says otherwise. */
function store(context, options = {}) {
  const { durability = "memory", path, ...rest } = options
  const at = path ?? (durability === "memory" ? `memory ${process.pid} ${names++}` : folder(context))
  const opened = thalweg.open(at, { segmentBytesMin: 4096, segmentBytesMax: 65536, ...rest, durability })
  after(context, () => opened.close())
  return opened
}

/** What a cursor comes to, until it stops. */
function drain(cursor) {
  const rows = []
  while (cursor.next()) rows.push(row(cursor))
  return rows
}

/** Has housekeeping write a segment anew: what goes whole has the checkpoints written that it waits for. */
async function writeAnew(opened, segment) {
  const bytes = () => statSync(join(opened.path, segment)).size
  const whole = bytes()
  for (let n = 0; bytes() === whole; n++) {
    if (n === 10) throw new Error(`${segment} is not written anew`)
    opened.log("goes").appendSync(Buffer.alloc(30_000))
    opened.rotate()
    await opened.purge({ log: "goes", destroy: true })
    while (await opened.maintain());
  }
}

/** Numbers that are the same in every run. */
function random(seed) {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 0x100000000) * below)
  }
}

/** Hands a view on to another thread, with all the memory that it lies in: refused by some versions, taken for a copy by others. What
 * does that without another thread, where there is such a thing, is refused (attached.test.js has it in every version). */
function handOn(view) {
  try {
    structuredClone(view, { transfer: [view.buffer] })
  } catch (error) {
    if (error.name !== "DataCloneError") throw error
  }
  for (const transfer of ["transfer", "transferToFixedLength"]) {
    if (transfer in view.buffer) assert.throws(() => view.buffer[transfer](), TypeError)
  }
}

module.exports = { ...thalweg, after, drain, folder, handOn, random, row, store, text, writeAnew }
