"use strict"

// One log: appending, and the ways to read it.

const { options, query: checkQuery, signal: signalOf, timeOf } = require("./arguments.js")
const { ThalwegError, badArgument, native } = require("./error.js")
const { Cursor } = require("./cursor.js")
const { Entries, LazyEntries } = require("./entries.js")
const { Places } = require("./places.js")
const { AREA_HEADER_BYTES } = require("./stage.js")
const { Tail } = require("./tail.js")

const RESOLVED = Promise.resolve()
// A turn's entries go over before they are this many bytes.
const STAGED_BYTES_MAX = 4 << 20
const TAIL = Object.freeze({ tail: true })
const TAIL_OPTIONS = { signal: "object" }

// One executor for every promise: what it was handed is taken from here at once.
let resolveMade, rejectMade
function capture(resolve, reject) {
  resolveMade = resolve
  rejectMade = reject
}

/** Why an append was not done that stands behind one that was refused: not for what it is itself. */
function behind(error) {
  if (!(error instanceof ThalwegError)) return error
  const { code, message, ...details } = error
  return new ThalwegError(code, `an append in front of it in its turn was refused: ${message}`, { ...details, cause: error })
}

class Log {
  constructor(store, name, handle) {
    this.store = store
    this.view = store.view
    this.name = name
    this.handle = handle
    // Its area in a turn in which something was appended.
    this.stage = null
    this.resolves = []
    this.rejects = []
    this.flushLater = () => this.flush()
    this.generation = -1
    this.lineage = []
    this.places = new Places()
    // It has not ended in front of there.
    this.openTo = 0
  }

  /** The number by which damage names it. */
  get id() {
    return this.handle.id()
  }

  /** Appends one entry at the end of this turn, together with whatever else is appended in it. */
  append(data, given) {
    try {
      this.put(data, timeOf(given))
    } catch (error) {
      if (this.resolves.length === 0) this.letGo()
      return Promise.reject(error)
    }
    if (this.resolves.length === 0) {
      this.store.staged.add(this)
      RESOLVED.then(this.flushLater)
    }
    const promise = new Promise(capture)
    this.resolves.push(resolveMade)
    this.rejects.push(rejectMade)
    if (this.stage.used > STAGED_BYTES_MAX) this.flush()
    return promise
  }

  /** Appends one entry now; in `sync` mode, waits for the disk. */
  appendSync(data, given) {
    // Reading the time from the options may run code that appends.
    const time = timeOf(given)
    this.view.check()
    // What was appended before comes before, to whichever log.
    this.store.flush()
    const stage = this.store.stages.take()
    try {
      stage.put(data, time, 0)
      native(() => this.handle.append(stage.bytes, stage.used))
      const offset = stage.offset(AREA_HEADER_BYTES)
      this.persist(stage.ticket)
      return offset
    } finally {
      this.store.stages.give(stage)
    }
  }

  /** Waits for the disk, where that is waited for. What cannot be waited for is written all the same: whether it lasts is not known. */
  persist(ticket) {
    if (ticket === 0) return
    try {
      native(() => this.view.opening.persist(ticket))
    } catch (error) {
      throw new ThalwegError(error.code, error.message, { outcome: "unknown" })
    }
  }

  /** Appends everything that an iterable yields, each a transaction of its own; resolves with how many there were. */
  async appendMany(entries, given) {
    const time = timeOf(given)
    return this.appendGroups(entries, (stage, data) => stage.put(data, time, 0))
  }

  /** The same with a time for each: the iterable yields pairs of a time and data. */
  async appendTimed(entries) {
    return this.appendGroups(entries, (stage, pair) => {
      if (typeof pair?.[Symbol.iterator] !== "function") throw badArgument("what appendTimed takes are pairs of a time and data")
      const [time, data] = pair
      stage.put(data, time, 0)
    })
  }

  async appendGroups(entries, put) {
    this.view.check()
    if (typeof entries?.[Symbol.iterator] !== "function") throw badArgument("entries are something that can be iterated over")
    // What was appended before comes before, to whichever log.
    this.store.flush()
    // The iterable may append meanwhile, so the area is not the turn's.
    const stage = this.store.stages.take()
    const done = { count: 0, ticket: 0 }
    const handOver = () => {
      this.view.check()
      this.handOver(stage, (appended) => {
        done.count += appended
        done.ticket = stage.ticket
      })
    }
    try {
      for (const entry of entries) {
        put(stage, entry)
        if (stage.used > STAGED_BYTES_MAX) handOver()
      }
      if (stage.count > 0) handOver()
    } catch (error) {
      if (error instanceof ThalwegError) error.appended = done.count
      throw error
    } finally {
      this.store.stages.give(stage)
    }
    if (done.ticket > 0) await this.store.lasts(done.ticket)
    return done.count
  }

  /** Appends all that is staged in an area, and tells how many at a time; empties it. */
  handOver(stage, tell) {
    try {
      while (stage.count > 0) {
        const appended = native(() => this.handle.append(stage.bytes, stage.used))
        tell(appended)
        stage.skip(appended)
      }
    } finally {
      stage.clear()
    }
  }

  put(data, time) {
    this.view.check()
    this.stage ??= this.store.stages.take()
    this.stage.put(data, time, 0)
  }

  /** Gives its area back, to be another log's. */
  letGo() {
    if (this.stage !== null) this.store.stages.give(this.stage)
    this.stage = null
  }

  /** Hands over what was staged. */
  flush() {
    const { stage, resolves, rejects } = this
    if (resolves.length === 0) return
    this.store.staged.delete(this)
    this.stage = null
    this.resolves = []
    this.rejects = []
    let done = 0
    try {
      this.handOver(stage, (appended) => {
        this.resolveAll(stage, resolves, rejects, done, appended)
        done += appended
      })
    } catch (error) {
      rejects[done](error)
      for (let n = done + 1; n < rejects.length; n++) rejects[n](behind(error))
    } finally {
      this.store.stages.give(stage)
    }
  }

  resolveAll(stage, resolves, rejects, from, count) {
    const ticket = stage.ticket
    let at = AREA_HEADER_BYTES
    if (ticket === 0) {
      for (let n = from; n < from + count; n++) {
        resolves[n](stage.offset(at))
        at = stage.behind(at)
      }
      return
    }
    const offsets = []
    for (let n = 0; n < count; n++) {
      offsets.push(stage.offset(at))
      at = stage.behind(at)
    }
    this.store.waits.persisted(ticket, (error) => {
      for (let n = 0; n < count; n++) {
        if (error === null) resolves[from + n](offsets[n])
        else rejects[from + n](error)
      }
    })
  }

  /** Entries of a query, oldest first, up to what is visible now. */
  query(query) {
    const cursor = new Cursor(this, query, false, "lazy")
    return query !== undefined && query.lazy === true ? new LazyEntries(cursor) : new Entries(cursor)
  }

  /** A cursor where a query begins: it stays, and goes on when there is more. */
  cursor(query) {
    return new Cursor(this, query, true, undefined)
  }

  /** Entries as they come, from now on unless the query says otherwise. */
  tail(query = TAIL, given) {
    const { signal } = options(given, TAIL_OPTIONS, "a tail")
    checkQuery(query, "signal")
    const begins = query.checkpoint === true || ["start", "after", "exact", "offset"].some((name) => query[name] !== undefined)
    const from = begins ? query : { ...query, tail: true }
    return new Tail(new Cursor(this, from, true, "signal"), this.store.waits, signalOf(signal ?? query.signal))
  }

  /** Which log holds a stretch of what this one does, as of the segments there are. */
  held(stretch) {
    if (this.generation !== this.view.generation) this.lookBack()
    return this.lineage[stretch]
  }

  lookBack() {
    const rows = native(() => this.handle.lineage())
    if (rows.length === 0) throw new ThalwegError("DELETED")
    this.lineage = rows.map(({ idLow, idHigh, from, cut }) => ({ idLow: idLow | 0, idHigh: idHigh | 0, from, cut }))
    this.generation = this.view.generation
  }

  /** A position from which a walk comes by what a stretch holds of an offset or a later one. */
  positionOf(stretch, offset) {
    const known = this.isAlone ? this.places.find(offset, this.generation) : undefined
    return known ?? native(() => this.handle.positionOf(stretch, offset))
  }

  /** Whether no other log holds anything of it: that would be the other's to move. */
  get isAlone() {
    return this.lineage.length === 1
  }

  /** How it ended, for a walk that came to a position, and to whose limit it may have ended unseen; null when it has not. */
  endedBy(position, limit) {
    if (limit <= this.openTo) return null
    const ended = native(() => this.handle.ended(position)) ?? null
    if (ended === null) this.openTo = limit
    return ended
  }

  /** The stretch that holds an offset. */
  stretchOf(offset) {
    const place = this.lineage.findIndex(({ cut }) => offset < cut)
    return place < 0 ? this.lineage.length - 1 : place
  }

  /** The first stretch with anything at or behind a position. */
  stretchAt(position) {
    const last = this.lineage.length - 1
    for (let place = 0; place < last; place++) {
      const { from, cut } = this.lineage[place]
      if (from < cut && native(() => this.handle.holdsBehind(place, position))) return place
    }
    return last
  }
}

module.exports = { Log }
