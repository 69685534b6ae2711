"use strict"

// A service of one's own: a program that is started, waited for until it answers, started again when it dies, and ended
// with the thread that started it, by the kernel.
//
// It is ready once it answers: that is found out by connecting, never by a pause or by what a program prints.

const { constants } = require("node:os")
const { setTimeout: pause } = require("node:timers/promises")
const binding = require("../binding.js")
const { ThalwegError, typed } = require("../error.js")
const { leave, listen } = require("../signals.js")
const { Client } = require("./client.js")
const { badArgument, native, options: checked } = require("./error.js")
const { checkSignal, duration, isLeftOut, said, timerMs } = require("./options.js")

const READY_WITHIN_MS = 10_000
const STOP_WITHIN_MS = 5_000
// One that lived for so long begins anew with short pauses.
const LIVED_MS = 60_000

// What may go wrong, and whether starting it again may help: nothing was asked of it yet.
const CODES = Object.freeze({
  NO_PROGRAM: { retry: "never", says: "the program cannot be started" },
  ADDRESS_IN_USE: { retry: "never", says: "another server has the endpoint" },
  DIED: { retry: "safe", says: "the program ended" },
  WEDGED: { retry: "safe", says: "the program did not answer in time and was ended" },
  CLOSED: { retry: "never", says: "the service was closed" },
})

class SpawnError extends ThalwegError {
  constructor(code, message, details) {
    super(code, `${CODES[code].says}: ${message}`, details)
    this.retry = CODES[code].retry
  }
}
Object.defineProperty(SpawnError.prototype, "name", { value: "SpawnError", writable: true, configurable: true })

const SPAWN = {
  endpoint: "string",
  readyWithinMs: "number",
  stopWithinMs: "number",
  logFile: "string",
  cwd: "string",
  env: "object",
  respawn: "boolean or object",
  onGone: "function",
  signal: "object",
}
const RESPAWN = { limit: "number", firstMs: "number", mostMs: "number" }

const SIGNALS = new Map(Object.entries(constants.signals).map(([name, number]) => [number, name]))

/** A signal's name; those of real time have only numbers. */
const signalName = (number) => SIGNALS.get(number) ?? `SIG${number}`

/** How a program ended, as the native side says it: neither a code nor a signal where nobody knows. */
const exitOf = ({ code = null, signal = null }) => ({ code, signal: signal === null ? null : signalName(signal) })

/** Starts a program that serves an endpoint; resolves once it answers there. */
async function spawn(program, args = [], given = undefined) {
  if (typeof program !== "string" || program === "") throw badArgument("a program is a path, or a name to be found in PATH")
  if (!Array.isArray(args) || !args.every(isText)) throw badArgument("arguments are a list of strings")
  const options = spawnOptions(given)
  const spawned = new Spawned(program, args, options)
  await begun(spawned, options.signal)
  return spawned
}

/** Waits until it answers, or ends it when the signal says so before. */
async function begun(spawned, signal) {
  if (isLeftOut(signal)) return spawned.begin()
  if (signal.aborted) throw signal.reason
  let ending = null
  const waiter = { abort: () => (ending = spawned.close()) }
  listen(signal, waiter)
  try {
    await spawned.begin()
  } catch (error) {
    if (ending === null) throw error
  } finally {
    leave(signal, waiter)
  }
  if (ending === null) return
  await ending
  throw signal.reason
}

const isText = (value) => typeof value === "string"

/** Options that were checked before anything is started. */
function spawnOptions(given) {
  const options = checked(given, SPAWN, "spawn")
  if (!isText(options.endpoint)) throw badArgument("endpoint is where the program listens")
  // There this process would speak to whoever started it.
  if (options.endpoint === "-") throw badArgument("a program is spoken to at a path: - is this process's own standard input and output")
  native(() => binding.checkEndpoint(options.endpoint))
  for (const name of ["readyWithinMs", "stopWithinMs"]) duration(options, name)
  checkSignal(options.signal)
  const env = options.env ?? {}
  if (!Object.values(env).every(isText)) throw badArgument("env of spawn is an object of strings")
  return { ...said(options), env, respawn: respawnOptions(options.respawn) }
}

/** How it is started again; null when it is not. */
function respawnOptions(respawn) {
  if (!respawn) return null
  const options = respawn === true ? {} : checked(respawn, RESPAWN, "respawn")
  for (const name of ["firstMs", "mostMs"]) duration(options, name)
  const limit = options.limit ?? 5
  if (!(limit >= 0)) throw badArgument("limit of respawn is how often it is started again in a row")
  return { limit, firstMs: options.firstMs ?? 100, mostMs: options.mostMs ?? 5_000 }
}

class Spawned {
  constructor(program, args, options) {
    this.program = program
    this.args = args
    this.endpoint = options.endpoint
    this.options = options
    this.readyWithinMs = options.readyWithinMs ?? READY_WITHIN_MS
    this.stopWithinMs = options.stopWithinMs ?? STOP_WITHIN_MS
    this.respawn = options.respawn
    this.child = null
    this.exit = null
    this.isClosed = false
    this.closing = new AbortController()
    /** How often it was started again. */
    this.respawns = 0
    /** Resolves once it answers; while it is being started again, once it does so anew. Rejects when it is given up. */
    this.ready = null
  }

  /** The process that runs now. */
  get pid() {
    return this.child?.id()
  }

  /** Ends it: TERM, and KILL when it does not go within `stopWithinMs`. Resolves to how it ended. */
  async close() {
    this.isClosed = true
    this.closing.abort()
    return this.child === null ? { code: null, signal: null } : this.end()
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close()
  }

  begin() {
    this.ready = this.launch()
    // A caller that awaits it sees why it failed; none has to.
    this.ready.catch(() => {})
    return this.ready
  }

  async launch() {
    const { endpoint, program, readyWithinMs } = this
    // Another server that answers would be taken for the one that is started here.
    if (binding.isEndpointTaken(endpoint)) throw new SpawnError("ADDRESS_IN_USE", `${endpoint}: end that one first`)
    const child = this.start()
    this.child = child
    this.exit = new Promise((resolve) => {
      const look = () => {
        const ended = child.ended()
        if (ended !== null) resolve(exitOf(ended))
      }
      native(() => child.watch(look))
    })
    const giveUp = new AbortController()
    const died = this.exit.then((how) => this.died(how))
    const answered = this.answered(giveUp.signal)
    try {
      await Promise.race([answered, died])
    } catch (error) {
      if (error instanceof SpawnError) throw error
      if (this.isClosed) throw new SpawnError("CLOSED", program)
      // One that ended just now says more than a connection that was refused.
      await this.end()
      const message = `${program} at ${endpoint} after ${readyWithinMs} ms: ${error.message}${behind(child.logTail())}`
      throw new SpawnError("WEDGED", message, { cause: error })
    } finally {
      giveUp.abort()
      died.catch(() => {})
      answered.catch(() => {})
    }
    this.since = performance.now()
    this.exit.then((how) => this.again(how))
  }

  async answered(signal) {
    const client = new Client(this.endpoint, { connectWithinMs: this.readyWithinMs })
    signal.addEventListener("abort", () => client.close(), { once: true })
    // Taken back with the launch: the next one adds its own.
    this.closing.signal.addEventListener("abort", () => client.close(), { once: true, signal })
    await client.joined()
  }

  start() {
    const { cwd, env, logFile } = this.options
    const options = { arguments: this.args, environment: Object.entries(env).flat(), directory: cwd, log: logFile }
    try {
      return binding.startProgram(this.program, options)
    } catch (error) {
      throw new SpawnError("NO_PROGRAM", `${this.program}: ${typed(error).message}`)
    }
  }

  died({ code, signal }) {
    if (this.isClosed) throw new SpawnError("CLOSED", this.program)
    const logTail = this.child.logTail()
    const message = `${this.program} ${told(code, signal)}${behind(logTail)}`
    throw new SpawnError("DIED", message, { exitCode: code, signal, logTail })
  }

  /** It died although it had answered. */
  async again(how) {
    if (this.isClosed) return
    const { respawn } = this
    if (respawn === null) {
      this.ready = Promise.reject(thrown(() => this.died(how)))
      this.ready.catch(() => {})
      this.options.onGone?.(thrown(() => this.died(how)))
      return
    }
    if (performance.now() - this.since > LIVED_MS) this.tries = 0
    this.ready = this.relaunch(respawn, how)
    // One that is closed on purpose is not gone.
    this.ready.catch((error) => this.isClosed || this.options.onGone?.(error))
  }

  async relaunch(respawn, how) {
    let last = thrown(() => this.died(how))
    for (this.tries ??= 0; this.tries < respawn.limit; ) {
      const wait = Math.min(respawn.firstMs * 2 ** this.tries++, respawn.mostMs)
      await pause(timerMs(wait), undefined, { signal: this.closing.signal }).catch(() => {})
      if (this.isClosed) throw new SpawnError("CLOSED", this.program)
      try {
        await this.launch()
        this.respawns++
        return
      } catch (error) {
        last = error
        // What the dead one had started may have its endpoint for a moment.
        if (error.retry === "never" && error.code !== "ADDRESS_IN_USE") throw error
      }
    }
    throw last
  }

  /** TERM, and KILL after a while. */
  async end() {
    const { child, exit } = this
    const late = new AbortController()
    const killed = async () => {
      await pause(timerMs(this.stopWithinMs), undefined, { signal: late.signal })
      native(() => child.kill())
      return exit
    }
    native(() => child.terminate())
    try {
      return await Promise.race([exit, killed()])
    } finally {
      late.abort()
    }
  }
}

// Why neither a code nor a signal is known.
const UNKNOWN = "this process ignores SIGCHLD, or waits elsewhere for all its children"

/** How it ended, in words. */
function told(code, signal) {
  if (signal !== null) return `by ${signal}`
  return code === null ? `in a way that nobody knows: ${UNKNOWN}` : `with exit code ${code}`
}

/** A log's lines as they are put behind a message. */
const behind = (lines) => (lines === "" ? "" : `\n${lines}`)

function thrown(act) {
  try {
    act()
  } catch (error) {
    return error
  }
  return undefined
}

module.exports = { SpawnError, spawn }
