"use strict"

// A session of the state: writes that no other session sees until they are committed, and that can be taken back. The same over a
// Unix socket, shared memory and JSON-RPC.

const { RemoteError, RpcClient, Schema } = require("../rpc/index.js")
const { Client } = require("../service/index.js")
const { ServiceError, badArgument, options: optionsOf } = require("../service/error.js")
const { said } = require("../service/options.js")

const OPEN = { fork: "string", leaseMs: "number", http: "object" }
const REJOIN = { http: "object" }
const SCAN = { start: "string", limit: "number" }

// Refusal codes after which the same call may be made again (docs/state.md); after every other one it would fail again.
const AGAIN = { TOO_MANY_FORKS: "safe", SESSIONS_FULL: "safe", NOT_TAKEN: "safe", UNKNOWN: "unknown" }

/** The state did not do what it was asked: `code` says why. But for `UNKNOWN`, nothing was changed. */
class StateError extends ServiceError {
  constructor(words) {
    super("REFUSED", words)
    this.code = words.split(": ", 1)[0].toUpperCase()
    this.retry = AGAIN[this.code] ?? "never"
  }
}
Object.defineProperty(StateError.prototype, "name", { value: "StateError", writable: true, configurable: true })

/** A refusal as what it is; anything else as it came. */
function typed(error) {
  if (error instanceof RemoteError && error.fault === "REFUSED") return new StateError(error.message)
  if (error instanceof RemoteError && error.fault !== undefined) return new ServiceError(error.fault, error.message, { cause: error })
  if (error instanceof ServiceError && error.code === "REFUSED") return new StateError(error.message)
  return error
}

/** What carries calls: a client of JSON-RPC, or one of frames that is called alike. */
async function line(at, http) {
  if (typeof at !== "string") throw badArgument("a session is opened at an endpoint, as ./run/state.sock, or at a URL")
  const schema = new Schema()
  if (at.startsWith("http://")) {
    // Calls of a session keep their order, as over a socket: each follows the one before it on one connection.
    const client = new RpcClient(at, { ...http, connectionsMax: 1 })
    try {
      await client.expectSchema(schema.hash)
    } catch (error) {
      client.close()
      throw error
    }
    const call = async (method, params) => {
      // What is no request is refused here, in the words that say so over a socket, and nothing is sent.
      schema.request(method, params)
      return client.call(method, params)
    }
    return { call, close: () => client.close() }
  }
  // A session is its token's: over another connection it goes on, or is told what became of it.
  const client = await Client.connect(at, { schema: schema.hash, reconnect: true })
  const sent = async (request) => {
    try {
      return await client.call(request)
    } catch (error) {
      if (error.code !== "NOT_SENT") throw error
      return client.call(request)
    }
  }
  return {
    call: async (method, params) => schema.result(method, await sent(schema.request(method, params))),
    close: () => client.close(),
  }
}

/** What a key is to hold. Of text it would be the base64 that is stored. */
function held(value) {
  if (value instanceof Uint8Array) return value
  throw badArgument("a value is a Uint8Array: encode text first")
}

const isIterable = (value) => typeof value?.[Symbol.iterator] === "function"

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"))

class Session {
  /** Begins a session at an endpoint or a URL. */
  static async open(at, options) {
    const { fork = "main", leaseMs, http } = said(optionsOf(options, OPEN, "a session"))
    const through = await line(at, http)
    const session = new Session(through)
    try {
      const told = await session.ask("Open", { fork, leaseMs })
      return session.begun(told.session, fork, told.leaseMs)
    } catch (error) {
      through.close()
      throw error
    }
  }

  /** Comes back to a session by its token; `isPending` says whether a snapshot is. */
  static async rejoin(at, token, options) {
    const { http } = optionsOf(options, REJOIN, "a session that is rejoined")
    if (typeof token !== "string") throw badArgument("a token is text: that of a session")
    const through = await line(at, http)
    const session = new Session(through)
    try {
      const told = await session.ask("Rejoin", { session: token })
      session.isPending = told.pending
      return session.begun(token, told.fork, told.leaseMs)
    } catch (error) {
      through.close()
      throw error
    }
  }

  constructor(through) {
    this.line = through
    this.isPending = false
    // That nothing is left to end, once it is closed or left.
    this.ending = undefined
  }

  begun(token, fork, leaseMs) {
    this.token = token
    this.fork = fork
    this.leaseMs = leaseMs
    return this
  }

  async ask(method, params) {
    try {
      return await this.line.call(method, params)
    } catch (error) {
      throw typed(error)
    }
  }

  /** Holds the fork as it is: what is written from here on lies beside it. One that is pending is committed first, unless nothing was written since. */
  async snapshot() {
    const { offset } = await this.ask("Snapshot", { session: this.token })
    this.isPending = true
    return offset
  }

  /** Commits what was written since the snapshot, all or nothing. Without a snapshot it does nothing. */
  async commit() {
    const { offset } = await this.ask("Commit", { session: this.token })
    this.isPending = false
    return offset
  }

  /** Forgets what was written since the snapshot, and the snapshot. */
  async rollback() {
    await this.ask("Rollback", { session: this.token })
    this.isPending = false
  }

  /** What a key holds, as this session sees it; `null` for nothing. */
  async get(key) {
    return bytes((await this.ask("Get", { place: this.token, key })).value)
  }

  /** A key holds a value from here on. */
  async put(key, value) {
    await this.ask("Put", { place: this.token, key, value: held(value) })
  }

  /** A key holds nothing from here on. */
  async remove(key) {
    await this.ask("Remove", { place: this.token, key })
  }

  /** Makes many changes, all or none of them: a key holds a value from here on, or `null`. */
  async write(changes) {
    if (!isIterable(changes)) throw badArgument("changes are something that can be iterated over, as an array or a Map")
    const list = Array.from(changes, (pair) => {
      if (!isIterable(pair)) throw badArgument("a change is a pair of a key and a value, or null")
      const [key, value] = pair
      return { key, value: value === null ? null : held(value) }
    })
    await this.ask("Batch", { place: this.token, changes: list })
  }

  /** Entries in the order of their keys, from one on, and where to go on if there is more. */
  async scan(options) {
    const { start, limit } = optionsOf(options, SCAN, "a scan")
    const { entries, next } = await this.ask("Scan", { place: this.token, start, limit })
    return { entries: entries.map(({ key, value }) => [key, bytes(value)]), next }
  }

  /** A digest of all that this session sees. */
  async root() {
    return bytes((await this.ask("Root", { place: this.token })).root)
  }

  /** Ends the session, and forgets what it did not commit; of one that was closed or left there is nothing to end. */
  async close() {
    if (this.ending !== undefined) return this.ending
    const ended = this.end()
    // A second call of close waits for the same; only the first one is told why it failed.
    this.ending = ended.catch(() => {})
    return ended
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close()
  }

  async end() {
    try {
      await this.ask("Close", { session: this.token })
    } finally {
      this.line.close()
    }
  }

  /** Hangs up. The session stays for its lease, to be rejoined. */
  leave() {
    this.ending ??= Promise.resolve()
    this.line.close()
  }
}

module.exports = { Session, StateError }
