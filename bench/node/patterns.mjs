// The patterns: what one turn of a thread does, how many operations that is, and what it must have read. They are those
// of `bench/src/log/patterns.rs`.

import { expected, Sum, TICK_ENTRIES, ticks } from "./workload.mjs"

const TICKS = 16
const RANGE_ENTRIES = 10
const ITERATORS = 100
const ITERATOR_ENTRIES = 100
const POLLS = 64
const IN_FLIGHT = 100
/** After which a follower that waits for entries has been forgotten, in milliseconds. */
const PATIENCE_MS = 20_000

/**
 * Prepares a pattern for a thread: answers what one turn does. `task` says the side, its way, what it takes up of an
 * entry, the entries of the store, and the thread's number.
 */
export function prepare(task, store) {
  return { scan, cold, ranges, iterators, seeks, polls, delivered, awaited, flight }[task.pattern](task, store)
}

function scan({ way, takes, entries, side }, store) {
  const reader = store.reader()
  const turn = () => {
    const sum = reader[way]()
    sum.check(expected(0, Math.max(entries, sum.entries)), takes, side)
    return { operations: sum.entries, sum }
  }
  turn()
  return turn
}

/** Opens a store that was closed, reads everything, and closes it. */
function cold({ way, takes, entries, side }, open) {
  return async () => {
    const store = open()
    const sum = store.reader()[way]()
    sum.check(expected(0, entries), takes, side)
    await store.close()
    return { operations: sum.entries, sum }
  }
}

/** Ticks of queries at random places, each thread from another tick on. */
function repeat({ way, takes, entries, side, thread }, store, queries, width, operations) {
  const reader = store.reader()
  const chosen = ticks(TICKS, queries, entries, width)
  let next = thread * 5
  const turn = () => {
    const { asked, wanted } = chosen[next % TICKS]
    next += 1
    const sum = reader[way](asked, width)
    sum.check(wanted, takes, side)
    return { operations, sum }
  }
  turn()
  next = thread * 5
  return turn
}

const ranges = (task, store) => repeat(task, store, 1_000, RANGE_ENTRIES, 1_000)
const seeks = (task, store) => repeat(task, store, 1_000, 1, 1_000)
const iterators = (task, store) =>
  repeat(task, store, ITERATORS, ITERATOR_ENTRIES, ITERATORS * ITERATOR_ENTRIES)

/** A reader behind a writer; what came must be what comes next. */
function follower({ takes, entries, side }, store) {
  const reader = store.reader()
  const total = new Sum()
  reader.follow()
  return () => {
    const before = total.entries
    reader.poll(total)
    if (total.entries > before) total.check(expected(entries, total.entries), takes, side)
    return total.entries - before
  }
}

function polls(task, store) {
  const poll = follower(task, store)
  return () => {
    const sum = new Sum()
    for (let n = 0; n < POLLS; n += 1) sum.entries += poll()
    return { operations: POLLS, sum }
  }
}

function delivered(task, store) {
  const poll = follower(task, store)
  return () => {
    const since = performance.now()
    const sum = new Sum()
    while (sum.entries < 10 * TICK_ENTRIES) {
      sum.entries += poll()
      if (sum.entries === 0 && performance.now() - since > PATIENCE_MS) throw new Error("nothing came")
    }
    return { operations: sum.entries, sum }
  }
}

/** Numbers that no other thread appends. */
const numbered = (thread, threads) => {
  let next = 0
  return () => (next += 1) * threads - threads + thread
}

function awaited({ thread, threads }, store) {
  const number = numbered(thread, threads)
  return async () => {
    for (let n = 0; n < 16; n += 1) await store.append(number())
    return { operations: 16, sum: expected(0, 16) }
  }
}

function flight({ thread, threads }, store) {
  const number = numbered(thread, threads)
  return async () => {
    await Promise.all(Array.from({ length: IN_FLIGHT }, () => store.append(number())))
    return { operations: IN_FLIGHT, sum: expected(0, IN_FLIGHT) }
  }
}
