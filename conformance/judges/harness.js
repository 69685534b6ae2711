// What the judges in JavaScript share: checks, told to the runner as lines of JSON (see README.md), and the
// server, which the runner kills and starts when asked.

import { createInterface } from "node:readline"

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
let checks = 0

const tell = (message) => process.stdout.write(`${JSON.stringify(message)}\n`)

/** The server's base URL. It changes when another server than ours is judged and was started again. */
export let base = process.argv[2]

/** Runs one check; whatever it throws is why it failed. */
export async function check(name, body) {
  checks += 1
  try {
    await within(180_000, body(), name)
    tell({ passed: name })
  } catch (error) {
    tell({ failed: name, why: error instanceof Error ? (error.stack ?? error.message) : String(error) })
  }
}

/** Says that this was all; the runner fails a judge that does not. */
export function done() {
  tell({ done: checks })
  process.exit(0)
}

export async function killServer() {
  tell({ server: "kill" })
  await answers.next()
}

export async function startServer() {
  tell({ server: "start" })
  base = (await answers.next()).value
}

/** What a promise resolves to, or an error when it has not by then. */
export function within(limitMs, promise, what) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing after ${limitMs} ms`)), limitMs)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
