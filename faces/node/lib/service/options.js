"use strict"

// What users may say when they connect or listen, checked before it reaches the native side.

const { badArgument } = require("./error.js")

const DEADLINE_MS_MAX = 0xffff_ffff

/** A number of milliseconds, 0 for none. */
function milliseconds(value, name) {
  if (value === undefined || value === null) return 0
  if (!(typeof value === "number" && value > 0)) throw badArgument(`${name} is a number of milliseconds above 0`)
  return Math.min(Math.ceil(value), DEADLINE_MS_MAX)
}

/** A schema's hash, as generated code has it. */
function hash(schema) {
  if (schema === undefined) return undefined
  if (typeof schema === "string" && /^[0-9a-f]{64}$/.test(schema)) return Buffer.from(schema, "hex")
  throw badArgument("schema is SCHEMA_HASH of the generated types: 64 hexadecimal digits")
}

/** How many items a stream may send at first; 0 leaves that to the server. */
function checkedCredit(options) {
  const credit = options?.credit
  if (credit === undefined || credit === null) return 0
  if (Number.isInteger(credit) && credit > 0 && credit <= 0xffff_ffff) return credit
  throw badArgument("credit is a number of items, 1 or more")
}

function whole(options, name, least, most) {
  const value = options[name]
  if (value !== undefined && !(Number.isInteger(value) && value >= least && value <= most)) {
    throw badArgument(`${name} is a whole number from ${least} to ${most}`)
  }
}

function duration(options, name) {
  const value = options[name]
  if (value !== undefined && !(typeof value === "number" && value >= 0)) {
    throw badArgument(`${name} is a number of milliseconds`)
  }
}

function connectOptions(options) {
  whole(options, "inFlightMax", 1, 1 << 20)
  whole(options, "frameBytesMax", 1, 1 << 30)
  whole(options, "ringBytes", 0, 1 << 30)
  whole(options, "unsentBytesMax", 1, 0xffff_ffff)
  duration(options, "connectWithinMs")
  if (options.deadlineMs !== undefined) milliseconds(options.deadlineMs, "deadlineMs")
  return { ...options, schema: hash(options.schema) }
}

function listenOptions(options) {
  whole(options, "inFlightMax", 1, 1 << 20)
  whole(options, "inFlightBytesMax", 1, 0xffff_ffff)
  whole(options, "frameBytesMax", 1, 1 << 30)
  whole(options, "ringBytesMax", 4096, 1 << 30)
  whole(options, "clientsMax", 1, 0xffff_ffff)
  whole(options, "unsentBytesMax", 1, 0xffff_ffff)
  whole(options, "streamCredit", 1, 0xffff_ffff)
  duration(options, "drainGraceMs")
  return { ...options, schema: hash(options.schema) }
}

module.exports = { checkedCredit, connectOptions, listenOptions, milliseconds }
