"use strict"

const { ThalwegError } = require("../error.js")
const { FAULTS } = require("../faults.js")

/** The server answered a call with an error. */
class RemoteError extends ThalwegError {
  constructor(number, message, data) {
    super("REMOTE_ERROR", message)
    this.number = number
    this.data = data
    const word = typeof data?.fault === "string" ? data.fault.toUpperCase() : undefined
    this.fault = word !== undefined && Object.hasOwn(FAULTS, word) ? word : undefined
    this.retry = this.fault === undefined ? "unknown" : FAULTS[this.fault].retry
  }
}
Object.defineProperty(RemoteError.prototype, "name", { value: "RemoteError", writable: true, configurable: true })

module.exports = { RemoteError }
