"use strict"

// What users may say when they connect or listen, checked before it reaches the native side.

const { badArgument, options: checked } = require("./error.js")

const DEADLINE_MS_MAX = 0xffff_ffff
// The longest that a timer of the event loop can be told to wait: it takes more for 1 ms.
const TIMER_MS_MAX = 0x7fff_ffff

const CALL = { deadlineMs: "number", credit: "number", signal: "object" }
const SYNC_CALL = { deadlineMs: "number", credit: "number" }
const CONNECT = {
  schema: "string",
  connectWithinMs: "number",
  deadlineMs: "number",
  inFlightMax: "number",
  unsentBytesMax: "number",
  frameBytesMax: "number",
  shared: "boolean",
  ringBytes: "number",
  spin: "boolean",
  plain: "boolean",
  sameUserOnly: "boolean",
  reconnect: "boolean",
}
// What only the event loop can do.
const CONNECT_ASYNC = { ...CONNECT, signal: "object" }
const LISTEN = {
  schema: "string",
  errorTag: "string",
  frameBytesMax: "number",
  ringBytesMax: "number",
  clientsMax: "number",
  inFlightMax: "number",
  inFlightBytesMax: "number",
  unsentBytesMax: "number",
  streamCredit: "number",
  spin: "boolean",
  drainGraceMs: "number",
  helloWithinMs: "number",
  sameUserOnly: "boolean",
}

/** What is left out, `null` included, is as it is. */
const isLeftOut = (value) => value === undefined || value === null

/** Options that say something: the native side knows no `null`. */
const said = (options) => Object.fromEntries(Object.entries(options).filter(([, value]) => !isLeftOut(value)))

/** What one call is given. */
function callOptions(given) {
  const options = checked(given, CALL, "a call")
  checkSignal(options.signal)
  checkedCredit(options)
  return options
}

/** What gives a call up, if anything does. */
function checkSignal(signal) {
  if (!isLeftOut(signal) && typeof signal.addEventListener !== "function") throw badArgument("a signal is an AbortSignal")
}

/** What a call that waits is given: nothing can abort it. */
function syncCallOptions(given) {
  const options = checked(given, SYNC_CALL, "a call that waits")
  checkedCredit(options)
  return options
}

/** A number of milliseconds, 0 for none. */
function milliseconds(value, name) {
  if (isLeftOut(value)) return 0
  if (!(typeof value === "number" && value > 0)) throw badArgument(`${name} is a number of milliseconds above 0`)
  return Math.min(Math.ceil(value), DEADLINE_MS_MAX)
}

/** A schema's hash, as generated code has it. */
function hash(schema) {
  if (isLeftOut(schema)) return undefined
  if (typeof schema === "string" && /^[0-9a-f]{64}$/.test(schema)) return Buffer.from(schema, "hex")
  throw badArgument("schema is SCHEMA_HASH of the generated types: 64 hexadecimal digits")
}

/** How many items a stream may send at first; 0 leaves that to the server. */
function checkedCredit(options) {
  const credit = options?.credit
  if (isLeftOut(credit)) return 0
  if (Number.isInteger(credit) && credit > 0 && credit <= 0xffff_ffff) return credit
  throw badArgument("credit is a number of items, 1 or more")
}

function whole(options, name, least, most) {
  const value = options[name]
  if (!isLeftOut(value) && !(Number.isInteger(value) && value >= least && value <= most)) {
    throw badArgument(`${name} is a whole number from ${least} to ${most}`)
  }
}

function duration(options, name) {
  const value = options[name]
  if (!isLeftOut(value) && !(typeof value === "number" && value >= 0)) throw badArgument(`${name} is a number of milliseconds`)
}

/** A number of milliseconds as a timer of the event loop takes it. */
const timerMs = (milliseconds) => Math.min(milliseconds, TIMER_MS_MAX)

/** How a client is connected that waits. */
const syncConnectOptions = (given) => connectSettings(given, CONNECT)

/** How one on the event loop is. */
function connectOptions(given) {
  const settings = connectSettings(given, CONNECT_ASYNC)
  checkSignal(settings.signal)
  return settings
}

function connectSettings(given, types) {
  const options = checked(given, types, "connect")
  whole(options, "inFlightMax", 1, 1 << 20)
  whole(options, "frameBytesMax", 1, 1 << 30)
  whole(options, "ringBytes", 0, 1 << 30)
  whole(options, "unsentBytesMax", 1, 0xffff_ffff)
  duration(options, "connectWithinMs")
  milliseconds(options.deadlineMs, "deadlineMs")
  return { ...said(options), schema: hash(options.schema) }
}

function listenOptions(given) {
  const options = checked(given, LISTEN, "listen")
  whole(options, "inFlightMax", 1, 1 << 20)
  whole(options, "inFlightBytesMax", 1, 0xffff_ffff)
  whole(options, "frameBytesMax", 1, 1 << 30)
  whole(options, "ringBytesMax", 4096, 1 << 30)
  whole(options, "clientsMax", 1, 0xffff_ffff)
  whole(options, "unsentBytesMax", 1, 0xffff_ffff)
  whole(options, "streamCredit", 1, 0xffff_ffff)
  duration(options, "drainGraceMs")
  duration(options, "helloWithinMs")
  return { ...said(options), schema: hash(options.schema) }
}

module.exports = {
  LISTEN, callOptions, checkSignal, checkedCredit, connectOptions, duration, isLeftOut, listenOptions, milliseconds, said,
  syncCallOptions, syncConnectOptions, timerMs, whole,
}
