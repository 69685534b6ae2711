// Typed calls of an echo server that runs already: `node bench/calls.mjs ENDPOINT [--side asynchronous|synchronous] [--depth N]
// [--milliseconds N | --turns N] [--work NAME] [--pair N]`. Prints a line of JSON, as the other languages' programs do. A
// turn is one call on each of so many chains under way at once; the time before the clock starts is as long as what is
// measured. Processor time is this process's.

import { parseArgs } from "node:util"
import { Client, SyncClient } from "thalweg/service"
import { EchoClient, EchoSyncClient } from "../echo/generated/echo_client.js"
import { SCHEMA_HASH } from "../echo/generated/echo_types.js"

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    side: { type: "string", default: "asynchronous" },
    depth: { type: "string", default: "16" },
    milliseconds: { type: "string", default: "1000" },
    turns: { type: "string", default: "0" },
    work: { type: "string", default: "calls" },
    pair: { type: "string", default: "0" },
  },
})
const [endpoint] = positionals
const depth = Number(options.depth)
const turns = Number(options.turns)
const request = { count: 7, total: 70_000n, name: "a name of some length" }

function check(answer) {
  if (answer.total !== request.total || answer.name !== request.name) throw new Error("another's answer")
}

/** Whether enough was done, looked at after every turn, and what was done. */
function clock() {
  const until = performance.now() + Number(options.milliseconds)
  let taken = 0
  return {
    goes: () => (turns > 0 ? taken < turns : performance.now() < until),
    turn: () => taken++,
    taken: () => taken,
  }
}

/** So many chains of calls, each of which awaits its answer before it calls again; how many calls there were. */
async function awaited(echo) {
  const chain = async () => {
    const time = clock()
    for (; time.goes(); time.turn()) check(await echo.fields(request))
    return time.taken()
  }
  const calls = await Promise.all(Array.from({ length: depth }, chain))
  return calls.reduce((sum, count) => sum + count, 0)
}

/** One call after the other. */
function waited(echo) {
  const time = clock()
  for (; time.goes(); time.turn()) check(echo.fields(request))
  return time.taken()
}

/** Measures what answers how many calls it made, after as long a time without a clock. */
async function measured(calls) {
  await calls()
  const before = process.cpuUsage()
  const started = performance.now()
  const operations = await calls()
  const seconds = (performance.now() - started) / 1000
  const { user, system } = process.cpuUsage(before)
  return { operations, per_second: operations / seconds, processor_us: (user + system) / operations }
}

const isSynchronous = options.side === "synchronous"
const client = isSynchronous
  ? SyncClient.connect(endpoint, { schema: SCHEMA_HASH })
  : await Client.connect(endpoint, { schema: SCHEMA_HASH })
const echo = isSynchronous ? new EchoSyncClient(client) : new EchoClient(client)
const figures = await measured(() => (isSynchronous ? waited(echo) : awaited(echo)))
client.close()
const told = { work: options.work, side: options.side, pair: Number(options.pair) }
console.log(JSON.stringify({ ...told, ...figures, entries: figures.operations, digest: 0, fixed: turns > 0 }))
