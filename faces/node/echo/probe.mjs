// The client that takes single steps and says how each ended: what is wrong is at the other end, and told by whoever started
// this. The steps stand in conformance/matrix/README.md.

import { Client, ServiceError } from "thalweg/service"
import { EchoClient } from "./generated/echo_client.js"
import { DecodeError } from "./generated/messagepack.js"
import { Refused } from "./generated/service.js"
import { SCHEMA_HASH } from "./generated/echo_types.js"

const REQUEST = { count: 7, total: 9n, name: "step" }
/** More than a frame may have unless said otherwise. */
const LARGE_BYTES = (16 << 20) + 1

/** What became of a call, in a word or two. */
function said(error) {
  if (error instanceof ServiceError) return `${error.code} ${error.retry}`
  if (error instanceof Refused) return "refused never"
  if (error instanceof DecodeError) return "decode"
  if (error.name === "AbortError") return "cancelled unknown"
  return String(error.stack)
}

const same = (response) =>
  response instanceof Uint8Array || Object.keys(REQUEST).every((name) => response[name] === REQUEST[name])

async function outcome(call) {
  try {
    const response = await call()
    return same(response) ? "ok" : JSON.stringify(response)
  } catch (error) {
    return said(error)
  }
}

/** Begins a call and gives it up. */
async function cancelled(echo) {
  const controller = new AbortController()
  const call = outcome(async () => echo.fields(REQUEST, { signal: controller.signal }))
  // So that the request has left.
  await new Promise(setImmediate)
  controller.abort()
  return call
}

/** Takes the steps. */
export async function run(endpoint, connectWithinMs, steps) {
  let client
  try {
    client = await Client.connect(endpoint, { schema: SCHEMA_HASH, connectWithinMs })
  } catch (error) {
    return console.log(said(error))
  }
  const echo = new EchoClient(client)
  const take = {
    echo: () => outcome(async () => echo.fields(REQUEST)),
    late: () => outcome(async () => echo.fields(REQUEST, { deadlineMs: 50 })),
    cancel: () => cancelled(echo),
    large: () => outcome(async () => client.call(new Uint8Array(LARGE_BYTES))),
  }
  for (const step of steps) {
    const sent = () => outcome(async () => client.call(new Uint8Array(Buffer.from(step.slice(1), "hex"))))
    console.log(await (take[step] ?? sent)())
  }
  client.close()
}
