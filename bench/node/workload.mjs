// What is written and what must come back: the entries of `bench/src/log/workload.rs`, number for number.

/** Time of entry 0, microseconds since the epoch. */
export const BASE_TIME = 1_700_000_000_000_000
/** Microseconds from one entry to the next. */
export const STEP = 1_000
/** Bytes of every payload. */
export const PAYLOAD_BYTES = 100
/** Entries that one tick of a writer adds. */
export const TICK_ENTRIES = 50

/** Time of an entry. Times are whole numbers below 2^53, so they are exact. */
export const time = (number) => BASE_TIME + number * STEP

const FILLING = Buffer.alloc(PAYLOAD_BYTES, ".")

/** Payload of an entry: its number's low byte first, then the number, then filling. */
export function payload(number) {
  const bytes = Buffer.allocUnsafe(PAYLOAD_BYTES)
  bytes.set(FILLING)
  bytes[0] = number & 0xff
  bytes.writeUInt32LE(number >>> 0, 1)
  bytes.writeUInt32LE(Math.floor(number / 2 ** 32), 5)
  return bytes
}

/**
 * What reading entries adds up to: how many, their times since the base, their lengths, their first bytes. What a way
 * of reading does not take up stays 0, and is not compared.
 */
export class Sum {
  constructor(entries = 0, times = 0, places = 0, lengths = 0, firsts = 0) {
    this.entries = entries
    this.times = times
    this.places = places
    this.lengths = lengths
    this.firsts = firsts
  }

  add(other) {
    this.entries += other.entries
    this.times += other.times
    this.places += other.places
    this.lengths += other.lengths
    this.firsts += other.firsts
  }

  /** Fails unless this is what was there. `takes` names what else besides the entries' number was read. */
  check(wanted, takes, side) {
    const right = this.entries === wanted.entries && takes.every((what) => this[what] === wanted[what])
    if (!right) throw new Error(`${side} read ${JSON.stringify(this)}, there was ${JSON.stringify(wanted)}`)
  }
}

const below = (number) => (number * (number - 1)) / 2

/** First bytes of the entries below a number, summed: they count from 0 to 255 and begin again. */
const firstBytes = (number) => Math.floor(number / 256) * 255 * 128 + below(number % 256)

/** What entries `from .. from + count` add up to. */
export function expected(from, count) {
  const times = (below(from + count) - below(from)) * STEP
  return new Sum(count, times, 0, count * PAYLOAD_BYTES, firstBytes(from + count) - firstBytes(from))
}

/** Numbers below `bound` that look random and are the same in every run (a 32-bit Weyl sequence, mixed). */
export function random(seed) {
  let state = seed >>> 0
  return (bound) => {
    state = (state + 0x9e3779b9) >>> 0
    let word = Math.imul(state ^ (state >>> 16), 0x21f0aaad)
    word = Math.imul(word ^ (word >>> 15), 0x735a2d97)
    return Math.floor((((word ^ (word >>> 15)) >>> 0) / 2 ** 32) * bound)
  }
}

/** `count` ticks of `queries` places below `entries - width`, with what `width` entries from each add up to. */
export function ticks(count, queries, entries, width) {
  const next = random(entries)
  return Array.from({ length: count }, () => {
    const asked = Array.from({ length: queries }, () => next(entries - width))
    const wanted = new Sum()
    for (const start of asked) wanted.add(expected(start, width))
    return { asked, wanted }
  })
}
