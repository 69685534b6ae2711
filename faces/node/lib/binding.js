"use strict"

// The native half, as it was built for this platform.

const { ThalwegError } = require("./error.js")

const FILE = `../native/thalweg-${process.platform}-${process.arch}.node`

try {
  module.exports = require(FILE)
} catch (error) {
  const message = `thalweg has no native part for ${process.platform}-${process.arch}: ${error.message}`
  throw new ThalwegError("UNSUPPORTED", message, { cause: error })
}
