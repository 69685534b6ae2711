"use strict"

// What goes wrong with a call, a connection or a server: a row of the one table of faults, as an error.

const { options: checked } = require("../arguments.js")
const { ThalwegError, typed } = require("../error.js")
const { FAULTS, faultOf } = require("../faults.js")

const UNKNOWN = Object.freeze({ number: 0, retry: "unknown", says: "a fault that this version does not know" })

/** A fault: `code` names it, `retry` says whether the same call may be made again. */
class ServiceError extends ThalwegError {
  constructor(code, message, details = undefined) {
    const fault = FAULTS[code] ?? UNKNOWN
    super(code, message || fault.says, details)
    this.retry = fault.retry
    this.number = fault.number
  }
}
Object.defineProperty(ServiceError.prototype, "name", { value: "ServiceError", writable: true, configurable: true })

/** The error for a number from the wire. */
function ofNumber(number, message) {
  const code = faultOf(number)
  return code === undefined
    ? new ServiceError(`FAULT_${number}`, message || `${UNKNOWN.says}: ${number}`)
    : new ServiceError(code, message)
}

/** The error for whatever a native call threw. What the native side does not name it could not even take. */
function faulty(error) {
  const known = typed(error)
  if (known instanceof ServiceError) return known
  if (known instanceof ThalwegError) return new ServiceError(known.code, known.message)
  return new ServiceError("BAD_ARGUMENT", wordsOf(known), { cause: known })
}

/** What was thrown, as text: anything can be thrown, and not everything says what it is. */
function wordsOf(error) {
  try {
    return String(error?.message ?? error)
  } catch {
    return "what was thrown has no words"
  }
}

/** Options that are checked as those of the log are. */
function options(given, types, what) {
  try {
    return checked(given, types, what)
  } catch (error) {
    throw faulty(error)
  }
}

/** Calls a native function, with its error made the typed one. */
function native(call) {
  try {
    return call()
  } catch (error) {
    throw faulty(error)
  }
}

const badArgument = (message) => new ServiceError("BAD_ARGUMENT", message)

module.exports = { ServiceError, badArgument, faulty, native, ofNumber, options, wordsOf }
