"use strict"

// What callers hand over, looked at before anything is done: what is of the wrong kind is refused by name. A word that is not known is
// refused, too: without the one that was meant, more might be done than was asked for.

const { badArgument } = require("./error.js")

const STARTS = "start, after, exact, offset, tail, checkpoint"
const NO_OPTIONS = Object.freeze({})

/** Options as an object; those that are not given are none. `types` has what `typeof` may say of each there is. */
function options(given, types, what) {
  if (given === undefined) return NO_OPTIONS
  if (typeof given !== "object" || given === null) throw badArgument(`options of ${what} are an object`)
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(types, name)) throw unknown(name, what, Object.keys(types).join(", "))
    const value = given[name]
    if (value !== undefined && value !== null && !types[name].includes(typeof value)) {
      throw badArgument(`${name} of ${what} is a ${types[name]}`)
    }
  }
  return given
}

/** The time in the options of an append; undefined when there is none. On the way of every append, as `query` is of reads. */
function timeOf(given) {
  if (given === undefined) return undefined
  if (typeof given !== "object" || given === null) throw badArgument("options of an append or a transaction are an object")
  for (const name in given) if (name !== "time") throw unknown(name, "an append or a transaction", "time")
  return given.time
}

/** What ends a wait; undefined when nothing does. */
function signal(given) {
  if (given === undefined || given === null) return undefined
  if (typeof given.addEventListener !== "function") throw badArgument("a signal is an AbortSignal")
  return given
}

const unknown = (name, what, known) => badArgument(`${what} takes no ${name}: it takes ${known}`)

/** The first half of a character in a text, and where it is. */
function half(value) {
  const at = value.search(/\p{Surrogate}/u)
  return `half of a character (\\u${value.charCodeAt(at).toString(16)}, a surrogate without its other) at index ${at}`
}

/** Text that can be stored as UTF-8: not empty where it must not be, and no half of a character. */
function text(value, what) {
  if (typeof value !== "string") throw badArgument(`${what} is a string`)
  if (!value.isWellFormed()) throw badArgument(`${what} holds ${half(value)}: give whole characters, as toWellFormed() makes them`)
  return value
}

function path(value) {
  if (value === "") throw badArgument("a path is a string, and not empty")
  if (text(value, "a path").includes("\0")) throw badArgument("a path holds no NUL")
  return value
}

/** What a query says, and the one word beside that some reads take. This is the way to every read, so it is short. */
function query(given, beside) {
  if (typeof given !== "object" || given === null) throw badArgument("a query is an object")
  const { start, after, exact, offset, end, tail, checkpoint, uncommitted, lazy } = given
  if (!(isTime(start) && isTime(after) && isTime(exact) && isTime(end))) {
    throw badArgument("times of a query are whole numbers of microseconds, or an infinity")
  }
  if (offset !== undefined && !(Number.isSafeInteger(offset) && offset >= 0)) {
    throw badArgument(`the offset of a query is a whole number from 0 to ${Number.MAX_SAFE_INTEGER}`)
  }
  if (!(isFlag(tail) && isFlag(checkpoint) && isFlag(uncommitted) && isFlag(lazy))) {
    throw badArgument("tail, checkpoint, uncommitted and lazy of a query are booleans")
  }
  for (const name in given) {
    switch (name) {
      case "start":
      case "end":
      case "after":
      case "exact":
      case "offset":
      case "tail":
      case "checkpoint":
      case "uncommitted":
      case beside:
        break
      default:
        throw unknown(name, "this query", [STARTS, "end", "uncommitted", ...(beside === undefined ? [] : [beside])].join(", "))
    }
  }
  let starts = start === undefined ? 0 : 1
  if (after !== undefined) starts++
  if (exact !== undefined) starts++
  if (offset !== undefined) starts++
  if (tail === true) starts++
  if (checkpoint === true) starts++
  if (starts > 1) throw badArgument(`a query begins in one place: give one of ${STARTS}`)
}

const isTime = (value) =>
  value === undefined || (typeof value === "number" && (Number.isInteger(value) || value === Infinity || value === -Infinity))

const isFlag = (value) => value === undefined || typeof value === "boolean"

module.exports = { options, path, query, signal, text, timeOf }
