// Debian's package index through a stream and back; see README.md.

import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { records } from "./packages.js"

const BATCH_BYTES = 256 * 1024
const TAIL_LIMIT_MS = 120_000

const base = process.argv[2] ?? "http://127.0.0.1:4437"
const limit = process.argv[3] === undefined ? Infinity : Number(process.argv[3])
const url = `${base}/v1/stream/debian-packages-${Date.now()}`

const written = records(limit)
const bytes = written.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
console.log(`${written.length} records, ${(bytes / 1e6).toFixed(1)} MB, to ${url}`)

/** Compares a record that was read with the one written at that place. */
function compare(reader, index, item) {
  const text = JSON.stringify(item)
  if (text !== written[index]) throw new Error(`${reader}: record ${index} differs:\n${text}\n${written[index]}`)
}

/** Prints how long a step took and how fast it was. */
function report(step, startedMs) {
  const seconds = (performance.now() - startedMs) / 1000
  const rate = Math.round(written.length / seconds)
  console.log(`${step}: ${written.length} records in ${seconds.toFixed(2)} s, ${rate} records/s, ` +
    `${(bytes / 1e6 / seconds).toFixed(1)} MB/s`)
}

/** Follows the stream from its start until every record has come, in order. */
async function tail() {
  const response = await stream({ url, offset: "-1", live: "sse", json: true })
  let seen = 0
  let live = 0
  let cancel = () => {}
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`tail: ${seen} records after ${TAIL_LIMIT_MS} ms`)), TAIL_LIMIT_MS)
    const settle = (end) => (value) => (clearTimeout(timer), end(value))
    cancel = response.subscribeJson(async (batch) => {
      try {
        for (const item of batch.items) compare("tail", seen++, item)
        if (!finished) live = seen
        if (seen === written.length) settle(resolve)()
      } catch (error) {
        settle(reject)(error)
      }
    })
  })
  cancel()
  console.log(`tail: ${live} records seen before the last append was acknowledged`)
  if (live === 0) throw new Error("tail: nothing came while the stream was being written")
}

let finished = false
const started = performance.now()
const handle = await DurableStream.create({ url, contentType: "application/json" })
const tailing = tail()
const failed = new Promise((_, reject) => tailing.catch(reject))

const errors = []
const producer = new IdempotentProducer(handle, "debian", {
  maxBatchBytes: BATCH_BYTES,
  onError: (error) => errors.push(error),
})
for (let index = 0; index < written.length; index += 1) {
  producer.append(written[index])
  // Let the tail have its turn: this is one process.
  if (index % 1000 === 999) await Promise.race([producer.flush(), failed])
}
await producer.flush()
finished = true
if (errors.length > 0) throw errors[0]
report("append", started)
await tailing
report("tail", started)

const reading = performance.now()
let read = 0
let offset = "-1"
for (;;) {
  // One answer is one chunk; a reader of history goes on from where it ended until it is up to date.
  const response = await stream({ url, offset, live: false })
  for (const item of await response.json()) compare("read", read++, item)
  if (response.upToDate) break
  offset = response.offset
}
if (read !== written.length) throw new Error(`read: ${read} records of ${written.length}`)
report("read", reading)

await handle.delete()
console.log("identical, twice")
process.exit(0)
