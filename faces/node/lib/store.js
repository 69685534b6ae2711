"use strict"

// A store, as this isolate has it open.

const { existsSync, mkdirSync, realpathSync, rmdirSync, statSync } = require("node:fs")
const { dirname, resolve } = require("node:path")
const { options: optionsOf, path: pathOf, signal: signalOf, text, timeOf } = require("./arguments.js")
const binding = require("./binding.js")
const { NewLogs } = require("./new-logs.js")
const { ThalwegError, badArgument, native, settled } = require("./error.js")
const { Log } = require("./log.js")
const { Stages, given } = require("./stage.js")
const { Tail } = require("./tail.js")
const { Transaction } = require("./transaction.js")
const { View } = require("./view.js")
const { Waits } = require("./waits.js")

// The first is that of a new store unless said otherwise.
const DURABILITIES = ["sync", "os", "memory"]
const OPTIONS = {
  durability: "string",
  readOnly: "boolean",
  segmentBytesMin: "number",
  segmentBytesMax: "number",
  retainUs: "number",
  retainBytes: "number",
  rotateAfterUs: "number",
}
// What a step in the making of a directory says that was removed since the step before.
const GONE_MEANWHILE = ["ENOENT", "EEXIST"]
const MAKE_ATTEMPTS_MAX = 16
const NEW_LOGS = { existing: "boolean", signal: "object" }
// Options that count something, and the most there may be of it.
const COUNTS = {
  segmentBytesMin: 0xffffffff,
  segmentBytesMax: 0xffffffff,
  retainUs: Number.MAX_SAFE_INTEGER,
  retainBytes: Number.MAX_SAFE_INTEGER,
  rotateAfterUs: Number.MAX_SAFE_INTEGER,
}

/** Opens the store at a path, or makes one there. */
function open(path, given) {
  const options = optionsOf(given, OPTIONS, "open")
  const { durability } = options
  const readOnly = options.readOnly ?? false
  pathOf(path)
  if (!DURABILITIES.includes(durability ?? DURABILITIES[0])) throw badArgument(`durability is one of ${DURABILITIES.join(", ")}`)
  for (const [name, most] of Object.entries(COUNTS)) {
    const count = options[name] ?? 0
    if (!Number.isInteger(count) || count < 0 || count > most) throw badArgument(`${name} is a whole number up to ${most}`)
  }
  const inMemory = durability === "memory" && !readOnly
  // Only what is asked for goes over: what is left out is as it is.
  const asked = { readOnly }
  for (const name of Object.keys(OPTIONS)) asked[name] = options[name] ?? asked[name]
  if (inMemory) return new Store(path, inMemory, asked)
  const { made, at } = readOnly ? { made: undefined, at: canonical(path) } : makeDirectory(path)
  try {
    return new Store(at, inMemory, asked)
  } catch (error) {
    if (made !== undefined) removeEmpty(resolve(path), resolve(made))
    throw error
  }
}

/** Answers the first directory that had to be made, and where the path leads. */
function makeDirectory(path) {
  for (let attempts = 1; ; attempts++) {
    try {
      return { made: makeEach(resolve(path)), at: realpathSync(path) }
    } catch (error) {
      // A store that is being destroyed, whose directory goes last, may have taken it away between two of these steps.
      if (attempts === MAKE_ATTEMPTS_MAX || !GONE_MEANWHILE.includes(error.code)) throw refused(error)
    }
  }
}

/**
 * The same as mkdirSync with `recursive`, which never ends where a file system says ENOENT of what cannot be made in a directory that is
 * there, as /proc does.
 */
function makeEach(path) {
  const missing = [path]
  for (let at = dirname(path); !existsSync(at); at = dirname(at)) missing.push(at)
  let first
  for (const at of missing.reverse()) {
    try {
      mkdirSync(at)
      first ??= at
    } catch (error) {
      if (!statSync(at, { throwIfNoEntry: false })?.isDirectory()) throw error
    }
  }
  return first
}

/** Removes directories that were made for a store that could not be opened, up to the first of them. */
function removeEmpty(path, first) {
  try {
    for (let at = path; at.length >= first.length; at = dirname(at)) rmdirSync(at)
  } catch {
    // There is something in it.
  }
}

const refused = (error) => new ThalwegError("IO", error.message, { cause: error })

function canonical(path) {
  try {
    return realpathSync(path)
  } catch {
    // What is no store is refused by the reader, in the same words everywhere.
    return path
  }
}

const PURGE = { log: "string", before: "number", destroy: "boolean", countEntries: "boolean" }

/**
 * What is to be purged: everything when nothing is handed over. Anything less has to be a word, and a word has to say something: one that
 * is not known is refused, and so are one whose value is undefined and an object with none, for without the one that was meant everything
 * might go.
 */
function purged(words) {
  if (words.length === 0) return {}
  const [purge] = words
  if (typeof purge !== "object" || purge === null) throw badArgument("what to purge is an object: leave it out to purge all")
  if (words.length > 1) throw badArgument("what to purge is one object: all words go into that")
  for (const name of Object.keys(purge)) {
    if (!Object.hasOwn(PURGE, name)) throw badArgument(`a purge has no ${name}: it takes ${Object.keys(PURGE).join(", ")}`)
  }
  const said = {}
  for (const [name, type] of Object.entries(PURGE)) {
    if (!(name in purge)) continue
    said[name] = purge[name]
    if (typeof said[name] !== type) throw badArgument(`${name} of a purge is a ${type}, or left out`)
  }
  if (Object.keys(said).length === 0) throw badArgument("an empty object does not say what to purge: leave it out to purge all")
  if (said.destroy === true && said.before !== undefined) {
    throw badArgument("a purge lets go of what lies before a time, or destroys logs: give one of before, destroy")
  }
  return said
}

class Store {
  constructor(path, inMemory, asked) {
    this.path = path
    this.inMemory = inMemory
    this.readOnly = asked.readOnly
    const opening = native(() => binding.open(path, asked))
    this.opening = opening
    // A store that is only read says what was asked for.
    this.durability = this.readOnly ? (asked.durability ?? DURABILITIES[0]) : opening.durability()
    this.segmentBytesMax = opening.segmentBytesMax()
    this.view = new View(opening)
    this.waits = new Waits(this.view)
    // Those that are referred to: there may be more logs than there is memory for.
    this.open = new Map()
    this.dropped = new FinalizationRegistry((name) => {
      if (this.open.get(name)?.deref() === undefined) this.open.delete(name)
    })
    this.staged = new Set()
    this.stages = new Stages()
    // How it ends, once it is closed.
    this.ending = undefined
    this.found = undefined
  }

  /** The log of that name, made if there is none. */
  log(name) {
    this.view.check()
    const known = this.open.get(name)?.deref()
    if (known !== undefined && !native(() => known.handle.isDeleted())) return known
    text(name, "a name")
    const log = new Log(this, name, native(() => this.opening.log(name)))
    this.open.set(name, new WeakRef(log))
    this.dropped.register(log, name)
    return log
  }

  /** Names of all logs, sorted. */
  logs() {
    this.view.check()
    return native(() => this.opening.names())
  }

  /** Names of logs as they become visible: of those to come, or of all. */
  newLogs(given) {
    this.view.check()
    const { existing, signal } = optionsOf(given, NEW_LOGS, "newLogs")
    return new Tail(new NewLogs(this, existing === true), this.waits, signalOf(signal), (newLogs) => newLogs.name)
  }

  /** A transaction; with a function, one that is committed when the function is done and aborted when it fails. */
  transaction(work, options) {
    if (typeof work === "function") return this.transact(work, options)
    this.view.check()
    return new Transaction(this, timeOf(work))
  }

  async transact(work, options) {
    this.view.check()
    const transaction = new Transaction(this, timeOf(options))
    let result
    try {
      result = await work(transaction)
    } catch (error) {
      transaction.abort()
      throw error
    }
    if (!transaction.isOver) await transaction.commit()
    return result
  }

  /** Lets go of the oldest entries, or of whole logs. */
  async purge(...words) {
    this.view.check()
    const { log, before, destroy = false, countEntries = false } = purged(words)
    if (log !== undefined) text(log, "log of a purge")
    if (before !== undefined) given(before)
    this.flush()
    return settled(native(() => this.opening.purge(log, before, destroy, countEntries)))
  }

  /** Begins a new segment. */
  rotate() {
    this.view.check()
    this.flush()
    native(() => this.opening.rotate())
  }

  /** What opening it found; null of a store that is only read, or has no files. */
  get recovery() {
    if (this.found === undefined) this.found = this.opening.recovery() ?? null
    return this.found
  }

  /** Spans that were damaged when it was opened, and, of one that is written, those that reads came upon since. */
  damage() {
    this.view.check()
    return native(() => this.opening.damage())
  }

  stats() {
    this.view.check()
    return native(() => this.opening.stats())
  }

  /** Looks at every byte of its files; in memory there are none. */
  async verify() {
    this.view.check()
    return settled(native(() => this.opening.verify()))
  }

  /** A backup of it in a directory, while it is written. */
  async backup(to) {
    this.view.check()
    pathOf(to)
    this.flush()
    return settled(native(() => this.opening.backup(to)))
  }

  /**
   * Housekeeping: a checkpoint when one is due, segments that no log needs. Done by itself as the store grows. Resolves with
   * whether there is more to do.
   */
  async maintain() {
    this.view.check()
    return settled(native(() => this.opening.maintain()))
  }

  /** Closes it here, and the store when this was the last opening in the process. A second call waits for the same. */
  close() {
    this.ending ??= this.leave()
    return this.ending
  }

  async leave() {
    this.flush()
    this.view.left = true
    try {
      await settled(this.opening.close())
    } finally {
      this.waits.look()
    }
  }

  /** Closes the store for every opening in this process and removes its files. */
  async destroy() {
    this.view.check()
    this.flush()
    const ending = native(() => this.opening.destroy())
    this.view.left = true
    this.waits.look()
    this.ending = settled(ending)
    return this.ending
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close()
  }

  flush() {
    for (const log of this.staged) log.flush()
  }

  /** Resolves when everything up to a position lasts. */
  lasts(ticket) {
    return new Promise((resolve, reject) => {
      this.waits.persisted(ticket, (error) => (error === null ? resolve() : reject(error)))
    })
  }
}

module.exports = { Store, open }
