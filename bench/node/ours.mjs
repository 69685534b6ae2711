// Ours: the package `thalweg`. It reads in three ways: eagerly (an object per entry, its data a view), lazily (an
// object per entry, its data made when asked for, which is not asked for here), and with a cursor (one object that
// moves); the first byte of the data is then asked for by itself. Appends of one turn of the event loop, and of one tick
// of a writer, become one native call; each is a transaction of its own.

import { open } from "thalweg"
import format from "../../faces/node/lib/format.js"
import { payload, Sum, TICK_ENTRIES, time, BASE_TIME } from "./workload.mjs"

const NAME = "bench"
// What the floor knows of the bytes, in words.
const { BATCH_MAGIC, KIND_DATA } = format
const [SEGMENT_WORDS, BATCH_WORDS] = [format.SEGMENT_HEADER_BYTES / 4, format.BATCH_HEADER_BYTES / 4]
const [TOUCHED_WORDS, FRAME_WORDS] = [format.TOUCHED_BYTES / 4, format.FRAME_HEADER_BYTES / 4]
const HIGH = 0x100000000

export class Ours {
  static open(directory, options) {
    return new Ours(open(directory, { durability: "os", ...options }))
  }

  constructor(store) {
    this.store = store
    this.log = store.log(NAME)
  }

  async fill(count) {
    for (let first = 0; first < count; first += 1_000) {
      let last
      for (let n = first; n < Math.min(first + 1_000, count); n += 1) last = this.append(n)
      await last
    }
  }

  append(number) {
    return this.log.append(payload(number), { time: time(number) })
  }

  tick(first) {
    const entries = []
    for (let n = first; n < first + TICK_ENTRIES; n += 1) entries.push([time(n), payload(n)])
    return this.log.appendTimed(entries)
  }

  close() {
    return this.store.close()
  }

  reader() {
    return new OursReader(this.log)
  }
}

class OursReader {
  constructor(log) {
    this.log = log
    this.cursor = log.cursor({})
  }

  eager() {
    let [entries, times, places, lengths, firsts] = [0, 0, 0, 0, 0]
    for (const { time, offset, data } of this.log.query({})) {
      entries += 1
      times += time - BASE_TIME
      places += offset
      lengths += data.length
      firsts += data[0]
    }
    return new Sum(entries, times, places, lengths, firsts)
  }

  lazy() {
    let [entries, times, places, lengths] = [0, 0, 0, 0]
    for (const entry of this.log.query({ lazy: true })) {
      entries += 1
      times += entry.time - BASE_TIME
      places += entry.offset
      lengths += entry.length
    }
    return new Sum(entries, times, places, lengths)
  }

  /** The floor: the same words added up in one loop, which knows that all entries are whole, wanted, and this log's. */
  bare() {
    let [entries, times, places, lengths] = [0, 0, 0, 0]
    const { view } = this.log
    view.refresh()
    for (const segment of view.segments) {
      segment.map()
      const { words } = segment
      let at = SEGMENT_WORDS
      while (at < words.length && words[at] !== 0) {
        if (words[at] === BATCH_MAGIC) {
          at += BATCH_WORDS + (words[at + 11] & 0xffff) * TOUCHED_WORDS
          continue
        }
        if ((words[at + 1] & 0xff) === KIND_DATA) {
          entries += 1
          times += words[at + 7] * HIGH + (words[at + 6] >>> 0) - BASE_TIME
          places += words[at + 5] * HIGH + (words[at + 4] >>> 0)
          lengths += words[at]
        }
        at += FRAME_WORDS + (((words[at] + 7) >>> 3) << 1)
      }
    }
    return new Sum(entries, times, places, lengths)
  }

  moved() {
    const { cursor } = this
    let [entries, times, places, lengths] = [0, 0, 0, 0]
    cursor.seek({})
    while (cursor.next()) {
      entries += 1
      times += cursor.time - BASE_TIME
      places += cursor.offset
      lengths += cursor.length
    }
    return new Sum(entries, times, places, lengths)
  }

  fresh(starts, count) {
    const sum = new Sum()
    for (const start of starts) {
      const query = { start: time(start), end: time(start + count), lazy: true }
      for (const entry of this.log.query(query)) take(sum, entry)
    }
    return sum
  }

  reused(starts, count) {
    const { cursor } = this
    const sum = new Sum()
    for (const start of starts) {
      cursor.seek({ start: time(start), end: time(start + count) })
      while (cursor.next()) takeMoved(sum, cursor)
    }
    return sum
  }

  seeks(starts) {
    const { cursor } = this
    const sum = new Sum()
    for (const start of starts) {
      cursor.seek({ start: time(start) - 500 })
      if (cursor.next()) takeMoved(sum, cursor)
    }
    return sum
  }

  iterate(starts, each) {
    const sum = new Sum()
    const open = starts.map((start) => this.log.query({ start: time(start), lazy: true })[Symbol.iterator]())
    for (let n = 0; n < each; n += 1) {
      for (const iterator of open) take(sum, iterator.next().value)
    }
    return sum
  }

  follow() {
    this.cursor = this.log.cursor({ tail: true })
  }

  poll(sum) {
    const { cursor } = this
    while (cursor.next()) takeMoved(sum, cursor)
  }
}

function take(sum, entry) {
  sum.entries += 1
  sum.times += entry.time - BASE_TIME
  sum.places += entry.offset
  sum.lengths += entry.length
  sum.firsts += entry.byte(0)
}

// The same for the object that moves, apart so that each loop sees one shape of object.
function takeMoved(sum, cursor) {
  sum.entries += 1
  sum.times += cursor.time - BASE_TIME
  sum.places += cursor.offset
  sum.lengths += cursor.length
  sum.firsts += cursor.byte(0)
}
