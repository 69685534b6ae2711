// The echo service on the event loop: `node server.mjs ENDPOINT`. The generated code is compiled by `npm run echo`.

import { Server } from "thalweg/service"
import { service } from "./generated/echo_server.js"

/** By fork: what was put last, and how often. */
const forks = new Map()
const last = ({ fork }) => ({ value: forks.get(fork)?.value })

const handler = {
  bytes: (request) => request,
  fields: (request) => request,
  nested: (request) => request,
  aliases: (request) => request,
  blobs: (request) => request,
  fail({ reason }) {
    throw new Error(reason)
  },
  numbers: (request) => request,
  places: (request) => request,
  async *count({ first, last }) {
    let count = 0
    for (let value = first; value <= last; value++, count++) yield { value }
    return { count }
  },
  put({ fork, value }) {
    const version = (forks.get(fork)?.version ?? 0n) + 1n
    // The request is a view of what was received.
    forks.set(fork, { value: value.slice(), version })
    return { version }
  },
  peek: last,
  peekCommitted: last,
}

const [endpoint] = process.argv.slice(2)
const server = await Server.listen(endpoint, service(handler))
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => server.close())
console.log("ready")
