"use strict"

// A client of JSON-RPC on the event loop. What is asked in one turn of the event loop leaves together at its end; nothing here
// waits, and no thread is started.

const binding = require("../binding.js")
const { ServiceError, badArgument, faulty, native, options: checked } = require("../service/error.js")
const { checkSignal, duration, isLeftOut, said, whole } = require("../service/options.js")
const { leave, listen } = require("../signals.js")
const { RemoteError } = require("./error.js")
const { parse, stringify } = require("./json.js")

const COUNTS = ["connectionsMax", "idleMax", "inFlightMax"]
const TIMES = ["deadlineMs", "idleForMs"]
const CLIENT = {
  deadlineMs: "number",
  connectionsMax: "number",
  idleMax: "number",
  idleForMs: "number",
  inFlightMax: "number",
  answerBytesMax: "number",
  token: "string",
}
const ASK = { deadlineMs: "number", idempotent: "boolean", url: "string", signal: "object" }

function clientOptions(given) {
  const options = checked(given, CLIENT, "a client of JSON-RPC")
  for (const name of COUNTS) whole(options, name, 0, 0xffff_ffff)
  whole(options, "answerBytesMax", 1, Number.MAX_SAFE_INTEGER)
  for (const name of TIMES) duration(options, name)
  return said(options)
}

/** A call as the native side takes it: its method, and its parameters as text. */
function words(method, given) {
  return [checkMethod(method), params(given)]
}

function checkMethod(method) {
  if (typeof method !== "string") throw badArgument("a method is a string")
  return method
}

/** Parameters as text. */
function params(value) {
  if (value === undefined || value === null) return ""
  if (typeof value !== "object" || value instanceof Uint8Array) throw badArgument("parameters are an object or an array")
  return stringify(value)
}

function read({ json, code, message }) {
  if (message === undefined || message === null) return parse(json)
  return new RemoteError(code, message, json === "" ? undefined : parse(json))
}

class RpcClient {
  /** Of the service at `http://host:port/rpc/name`. Connects with the first call. */
  constructor(url, options) {
    if (typeof url !== "string") throw badArgument("a URL is text, as http://127.0.0.1:4437/rpc/log")
    const settings = clientOptions(options)
    this.waiters = new Map()
    this.isClosed = false
    this.isHeld = false
    this.isFlushing = false
    this.receiveNow = () => this.receive()
    this.flushLast = () => process.nextTick(this.receiveNow)
    this.native = native(() => binding.openRpc(url, settings))
    native(() => this.native.watch(this.receiveNow))
  }

  /** Makes one call; resolves to its result. */
  async call(method, given, options) {
    const answers = await this.ask(words(method, given), false, false, options)
    const answer = read(answers[0])
    if (answer instanceof RemoteError) throw answer
    return answer
  }

  /** Has something done that has no answer; resolves when the server has it. */
  async notify(method, given, options) {
    await this.ask(words(method, given), false, true, options)
  }

  /** Makes calls together; resolves to results in the order of the calls, a `RemoteError` where one is an error. */
  async batch(calls, options) {
    if (!Array.isArray(calls) || !calls.every(Array.isArray)) throw badArgument("a batch is an array of calls, each [method, params]")
    const all = calls.flatMap(([method, given]) => words(method, given))
    return (await this.ask(all, true, false, options)).map(read)
  }

  /** Asks whether the service was made from the schema with this hash, a `Schema`'s; rejects with `SCHEMA_MISMATCH` if not. */
  async expectSchema(hash, options) {
    const version = await this.call("rpc.version", undefined, options)
    if (version?.schema !== hash) {
      throw new ServiceError("SCHEMA_MISMATCH", `the server is ${stringify(version)}, and ${hash} is expected`)
    }
  }

  /** What it has done so far. */
  get statistics() {
    return native(() => this.native.statistics())
  }

  /** Closes every connection. Calls under way fail with `CLOSED`. */
  close() {
    if (this.isClosed) return
    this.isClosed = true
    this.native.close()
    const waiters = [...this.waiters.values()]
    this.waiters.clear()
    for (const waiter of waiters) waiter.fail(new ServiceError("CLOSED", "this client was closed"))
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.close()
  }

  ask(calls, batch, notifies, given) {
    const options = said(checked(given, ASK, "a call"))
    const { signal, idempotent, deadlineMs, url } = options
    duration(options, "deadlineMs")
    checkSignal(signal)
    if (signal?.aborted) throw signal.reason
    const call = native(() => this.native.begin(calls, { batch, notifies, idempotent, deadlineMs, url }))
    return new Promise((resolve, reject) => {
      const over = (settle) => (value) => {
        if (!isLeftOut(signal)) leave(signal, waiter)
        settle(value)
      }
      const waiter = { end: over(resolve), fail: over(reject), abort: (reason) => this.giveUp(call, reason) }
      if (!isLeftOut(signal)) listen(signal, waiter)
      this.waiters.set(call, waiter)
      this.flushLater()
    })
  }

  /** A signal says so. The server is told; what it still answers is dropped. */
  giveUp(call, reason) {
    const waiter = this.waiters.get(call)
    this.waiters.delete(call)
    this.native.cancel(call)
    this.flushLater()
    waiter.fail(reason)
  }

  /** A turn when everything that runs now has run, promises included. */
  flushLater() {
    if (this.isFlushing) return
    this.isFlushing = true
    queueMicrotask(this.flushLast)
  }

  receive() {
    this.isFlushing = false
    if (this.isClosed) return
    let came
    try {
      came = this.native.turn()
    } catch (error) {
      const waiters = [...this.waiters.values()]
      this.waiters.clear()
      for (const waiter of waiters) waiter.fail(faulty(error))
      came = []
    }
    for (const { call, answers, fault, detail } of came) {
      const waiter = this.waiters.get(call)
      if (waiter === undefined) continue
      this.waiters.delete(call)
      if (fault === undefined || fault === null) waiter.end(answers)
      else waiter.fail(new ServiceError(fault, detail))
    }
    this.hold()
  }

  /** The process stays alive while a call waits. */
  hold() {
    const isNeeded = this.waiters.size > 0
    if (isNeeded === this.isHeld || this.isClosed) return
    this.isHeld = isNeeded
    this.native.hold(isNeeded)
  }
}

module.exports = { RpcClient, checkMethod, params }
