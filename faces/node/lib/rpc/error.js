"use strict"

const { ThalwegError } = require("../error.js")
const { FAULTS } = require("../faults.js")

/** No JSON, and no request. */
const NOT_BEGUN = [-32700, -32600]

/** The server answered a call with an error. */
class RemoteError extends ThalwegError {
  constructor(number, message, data) {
    super("REMOTE_ERROR", message)
    this.number = number
    this.data = data
    const word = typeof data?.fault === "string" ? data.fault.toUpperCase() : undefined
    this.fault = word !== undefined && Object.hasOwn(FAULTS, word) ? word : undefined
    // Any server did not carry out what it took for no JSON or no request; another number says nothing about that.
    const unnamed = NOT_BEGUN.includes(number) ? "safe" : "unknown"
    this.retry = this.fault === undefined ? unnamed : FAULTS[this.fault].retry
  }
}
Object.defineProperty(RemoteError.prototype, "name", { value: "RemoteError", writable: true, configurable: true })

module.exports = { RemoteError }
