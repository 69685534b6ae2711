// The echo service on the event loop: `node server.mjs ENDPOINT`. The generated code is compiled by `npm run echo`.

import { Server } from "thalweg/service"
import { service } from "./generated/echo_server.js"

/** By fork: what was put last, and how often. */
const forks = new Map()
const last = ({ fork }) => ({ value: forks.get(fork)?.value })
/** By fork: goes on with what waits until somebody asks for what is committed. */
const held = new Map()
const HOLD = Buffer.from("hold")

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
  async put({ fork, value: received }) {
    // The request is a view of what was received.
    const value = received.slice()
    if (HOLD.equals(value)) await new Promise((resolve) => held.set(fork, resolve))
    const version = (forks.get(fork)?.version ?? 0n) + 1n
    forks.set(fork, { value, version })
    return { version }
  },
  peek: last,
  peekCommitted(request) {
    const response = last(request)
    held.get(request.fork)?.()
    held.delete(request.fork)
    return response
  },
}

const [endpoint] = process.argv.slice(2)
const server = await Server.listen(endpoint, service(handler))
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => server.close())
console.log("ready")
