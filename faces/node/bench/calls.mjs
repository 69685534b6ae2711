// Typed calls per second: `node bench/calls.mjs ENDPOINT [depth] [seconds] [sync]`, against an echo server that runs
// already. One line per second, then the median. CPU is this process's, in microseconds per call.

import { Client, SyncClient } from "thalweg/service"
import { EchoClient, EchoSyncClient } from "../echo/generated/echo_client.js"
import { SCHEMA_HASH } from "../echo/generated/echo_types.js"

const [endpoint, depth = "16", seconds = "5", how] = process.argv.slice(2)
const request = { count: 7, total: 70_000n, name: "a name of some length" }
const rates = []

async function second(round) {
  const before = process.cpuUsage()
  const started = performance.now()
  let calls = 0
  while (performance.now() - started < 1000) calls += await round()
  const elapsed = (performance.now() - started) / 1000
  const { user, system } = process.cpuUsage(before)
  rates.push(calls / elapsed)
  console.log(`${Math.round(calls / elapsed)} calls/s, ${((user + system) / calls).toFixed(2)} us of CPU per call`)
}

async function asynchronous() {
  const client = await Client.connect(endpoint, { schema: SCHEMA_HASH })
  const echo = new EchoClient(client)
  const chain = async (calls) => {
    for (let n = 0; n < calls; n++) if ((await echo.fields(request)).total !== request.total) throw new Error("another's answer")
  }
  const calls = 200
  for (let n = 0; n < Number(seconds); n++) {
    await second(async () => {
      await Promise.all(Array.from({ length: Number(depth) }, () => chain(calls)))
      return Number(depth) * calls
    })
  }
  client.close()
}

async function blocking() {
  const client = SyncClient.connect(endpoint, { schema: SCHEMA_HASH })
  const echo = new EchoSyncClient(client)
  for (let n = 0; n < Number(seconds); n++) {
    await second(() => {
      for (let n = 0; n < 1000; n++) if (echo.fields(request).total !== request.total) throw new Error("another's answer")
      return 1000
    })
  }
  client.close()
}

await (how === "sync" ? blocking() : asynchronous())
rates.sort((a, b) => a - b)
console.log(`median ${Math.round(rates[rates.length >> 1])} calls/s`)
