// Everything as a user would write it; what must not compile says so.

import { CODES, ThalwegError, backup, open, parse, restore, verify } from "thalweg"
import type { AnyCode, Backup, Damage, Durability, Entry, ErrorCode, Log, Piece, Query, Recovery } from "thalweg"

const durability: Durability = "os"
const store = open("data", { durability, segmentBytesMax: 1 << 20 })
const log: Log = store.log("orders")

const offset: number = await log.append("text", { time: 5 })
const [first, second]: [number, number] = await Promise.all([log.append(Buffer.from("a")), log.append(new Uint16Array(2))])
const sum: number = log.appendSync(new DataView(new ArrayBuffer(1))) + offset + first + second

const many: number = (await log.appendMany(["a", Buffer.from("b")], { time: 1 })) + (await log.appendTimed([[2, "c"], [undefined, "d"]]))
// @ts-expect-error a time stands before its entry
log.appendTimed([["c", 2]]).catch(() => many)
for (const entry of log.query({ lazy: true })) console.log(entry.byte(0)?.toFixed())
for (const entry of log.query({ start: 1, end: 2 })) {
  const { time, data }: Entry = entry
  console.log(time + sum, data.subarray(1), new Blob([data]).size)
  // @ts-expect-error an entry is only read
  entry.time = 4
}
for (const { length, last } of log.query({ after: 3, lazy: true })) console.log(length.toFixed(), last === true)
// @ts-expect-error only a lazy entry has a length of its own
for (const { length } of log.query({ exact: 3 })) console.log(length)

// @ts-expect-error a query begins in one place
log.query({ start: 1, offset: 7 })
// @ts-expect-error nor do two flags go together
log.cursor({ start: 1 }).seek({ tail: true, checkpoint: true })
const begun: Query = { start: 1, tail: false, end: 3 }

/** Whoever hands on what may be left out hands it on. */
export function handedOn(given: { start?: number; lazy?: boolean; time?: number; durability?: Durability; signal?: AbortSignal }): void {
  const { start, lazy, time, durability, signal } = given
  const again = open("data", { durability, retainUs: time, readOnly: undefined })
  for (const entry of again.log("orders").query({ start, lazy, end: time })) console.log(entry.time)
  // @ts-expect-error a query begins in one place, be it that one of them may be left out
  log.query({ start, offset: time })
  again.log("orders").tail({ start, tail: undefined }, { signal })
  again.log("orders").append("x", { time }).catch(() => again.transaction({ time }))
  again.newLogs({ existing: lazy, signal })
}

log.cursor(begun)
log.tail()
const cursor = log.cursor({ offset: 7, uncommitted: true })
while (cursor.next()) console.log(cursor.time, cursor.data.length, cursor.ended === "damaged")
cursor.seek({ tail: true })

const { signal } = new AbortController()
for await (const entry of log.tail({ checkpoint: true }, { signal })) console.log(entry.offset)

const answer: string = await store.transaction((transaction) => {
  transaction.append(log, "x")
  return transaction.count.toString()
})
const more: boolean = await store.maintain()
const transaction = store.transaction({ time: more ? 2 : 1 })
transaction.abort()
// @ts-expect-error numbers are no data
transaction.append(log, 7)
await store.purge({ log: "orders", before: 5 })
await store.purge()
// @ts-expect-error a word that is there says something
await store.purge({ log: undefined, destroy: true })
// @ts-expect-error and so does whoever says anything
await store.purge(undefined)
// @ts-expect-error there is no such mode
open("data", { durability: "most" })

try {
  console.log(answer, (await verify("data")).damage.length, (await store.verify()).end, store.stats().stagedEnd)
} catch (error) {
  if (error instanceof ThalwegError) {
    const code: AnyCode = error.code
    // @ts-expect-error no error has this code
    console.log(code, error.code === "CLOSE")
    if (error.code === "DAMAGED") console.log(CODES[error.code], error.from, error.logs?.length)
    // @ts-expect-error what led to it may be anything
    console.log(error.cause?.code)
    if (error.cause instanceof ThalwegError) console.log(error.cause.code)
  }
}
const taken: Backup = await store.backup("backup")
console.log(taken.linked + (await backup("data", "other")).copiedBytes + (await restore("backup", "again")).end)
for await (const piece of parse("again")) {
  const known: Piece = piece
  if (piece.piece === "frame" && piece.kind === "data") console.log(piece.name?.length, piece.payload.subarray(1), known)
  if (piece.piece === "batch") console.log(piece.touched[0]?.end, piece.whole)
  // @ts-expect-error only a segment has a file and a number
  if (piece.piece === "end") console.log(piece.number)
}
// @ts-expect-error a backup goes somewhere
store.backup().catch(() => {})
const { indexBytes, batches, batchBytes, mappedBytes, purges } = store.stats()
console.log(indexBytes / batchBytes, batches, mappedBytes, purges)
const found: Recovery | null = store.recovery
console.log(found?.clean, found?.discardedBytes, found?.checkpoint?.toFixed(), found?.unnamed?.message)
const known: ErrorCode[] = ["HELD", "IO"]
console.log(known.map((code) => CODES[code]))
const spans: Damage[] = store.damage()
console.log(spans.map(({ file, from, resumes, logs }) => `${file} ${from} ${resumes} ${logs?.length}`))
const names: string[] = store.logs()
console.log(names)
for await (const name of store.newLogs({ existing: true, signal })) console.log(name.length)
await store.close()
await store.destroy()
