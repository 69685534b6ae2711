// The peer: LMDB through `lmdb`, the package by which Node.js programs use it, set up as favourably as it allows.
//
// Values are binary, keys are the times as numbers, put in order with `append`. `noSync` is on, `useWritemap` is off, as
// its documentation discourages it. Asynchronous puts of one turn of the event loop are batched into one transaction,
// which is how the package is fastest. A snapshot is given up before each turn of a pattern, not before each query.

import { open } from "lmdb"
import { payload, Sum, TICK_ENTRIES, time, BASE_TIME } from "./workload.mjs"

const APPEND = { append: true }

export class Peer {
  static open(directory, options) {
    const usual = { encoding: "binary", noSync: true, mapSize: 16 * 2 ** 30, maxReaders: 126 }
    return new Peer(open({ path: directory, ...usual, ...options }))
  }

  constructor(db) {
    this.db = db
  }

  /** Entries `0 .. count`, in few transactions. */
  fill(count) {
    for (let first = 0; first < count; first += 10_000) {
      this.db.transactionSync(() => {
        for (let n = first; n < Math.min(first + 10_000, count); n += 1) this.db.putSync(time(n), payload(n), APPEND)
      })
    }
  }

  /** One entry; its promise. Others may append at the same time, so the order is the package's business. */
  append(number) {
    return this.db.put(time(number), payload(number))
  }

  /** One tick of a writer: the promise of the last entry, which is that of their one transaction. */
  tick(first) {
    let last
    for (let n = first; n < first + TICK_ENTRIES; n += 1) last = this.db.put(time(n), payload(n), APPEND)
    return last
  }

  close() {
    return this.db.close()
  }

  reader() {
    return new PeerReader(this.db)
  }
}

class PeerReader {
  constructor(db) {
    this.db = db
    this.last = 0
  }

  scan() {
    this.db.resetReadTxn()
    let [entries, times, lengths, firsts] = [0, 0, 0, 0]
    for (const { key, value } of this.db.getRange()) {
      entries += 1
      times += key - BASE_TIME
      lengths += value.length
      firsts += value[0]
    }
    return new Sum(entries, times, times, lengths, firsts)
  }

  /** Keys without values: the least that the package can be asked for. */
  keys() {
    this.db.resetReadTxn()
    let [entries, times] = [0, 0]
    for (const key of this.db.getKeys()) {
      entries += 1
      times += key - BASE_TIME
    }
    return new Sum(entries, times)
  }

  ranges(starts, count) {
    this.db.resetReadTxn()
    const sum = new Sum()
    for (const start of starts) {
      const range = { start: time(start), end: time(start + count) }
      for (const { key, value } of this.db.getRange(range)) take(sum, key, value)
    }
    return sum
  }

  seeks(starts) {
    this.db.resetReadTxn()
    const sum = new Sum()
    for (const start of starts) {
      const range = { start: time(start) - 500, limit: 1 }
      for (const { key, value } of this.db.getRange(range)) take(sum, key, value)
    }
    return sum
  }

  iterate(starts, each) {
    this.db.resetReadTxn()
    const sum = new Sum()
    const open = starts.map((start) => this.db.getRange({ start: time(start) })[Symbol.iterator]())
    for (let n = 0; n < each; n += 1) {
      for (const iterator of open) {
        const { key, value } = iterator.next().value
        take(sum, key, value)
      }
    }
    for (const iterator of open) iterator.return()
    return sum
  }

  follow() {
    this.db.resetReadTxn()
    this.last = 0
    for (const key of this.db.getKeys({ reverse: true, limit: 1 })) this.last = key
  }

  poll(sum) {
    this.db.resetReadTxn()
    for (const { key, value } of this.db.getRange({ start: this.last, exclusiveStart: true })) {
      take(sum, key, value)
      this.last = key
    }
  }
}

function take(sum, key, value) {
  sum.entries += 1
  sum.times += key - BASE_TIME
  sum.lengths += value.length
  sum.firsts += value[0]
}
