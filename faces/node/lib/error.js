"use strict"

// The one table of what can go wrong, and the error that carries it. Native errors come as JSON (src/error.rs).

const CODES = Object.freeze({
  BAD_ARGUMENT: "an argument is of the wrong kind",
  BAD_NAME: "no log can have that name",
  CLOSED: "the store is closed",
  CONFLICT: "the store is in use in another way",
  DAMAGED: "bytes do not read back as they were written",
  DELETED: "the log is deleted",
  EMPTY_ENTRY: "an entry holds at least one byte",
  FAILED: "a sync failed: the store takes no more entries until it is opened again",
  FULL: "the disk is full",
  HELD: "another process has the store open",
  IN_MEMORY: "a store in memory has no files",
  IO: "the operating system refused",
  LOG_CLOSED: "the log is closed and takes no more entries",
  NEWER: "a newer program wrote the store",
  NO_LOG: "there is no log of that name",
  NOT_A_STORE: "the directory holds no store",
  NOT_CLOSED: "the backup is a store that was not closed",
  OCCUPIED: "the directory is not empty",
  PENDING: "a transaction is going to append to the log",
  READ_ONLY: "the store was opened to be read only",
  TOO_LARGE: "the entries do not fit into one commit",
  TRANSACTION_OVER: "the transaction was committed or aborted",
  UNSUPPORTED: "there is no native part for this platform, or this JavaScript engine cannot look at memory outside its own heap",
})

class ThalwegError extends Error {
  constructor(code, message = CODES[code], details = undefined) {
    super(message)
    this.code = code
    if (details !== undefined) Object.assign(this, details)
  }
}
Object.defineProperty(ThalwegError.prototype, "name", { value: "ThalwegError", writable: true, configurable: true })

/** The typed error for whatever a native call threw. */
function typed(error) {
  if (error instanceof ThalwegError) return error
  let parsed
  try {
    parsed = JSON.parse(error.message)
  } catch {
    return error
  }
  const { code, message, ...details } = parsed
  return new ThalwegError(code, message, details)
}

/** Calls a native function, with its error made the typed one. */
function native(call) {
  try {
    return call()
  } catch (error) {
    throw typed(error)
  }
}

/** Waits for a native task, with its error made the typed one. */
async function settled(promise) {
  try {
    return await promise
  } catch (error) {
    throw typed(error)
  }
}

const badArgument = (message) => new ThalwegError("BAD_ARGUMENT", message)

module.exports = { CODES, ThalwegError, badArgument, native, settled, typed }
