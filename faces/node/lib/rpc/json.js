"use strict"

// JSON whose integers are exact: those that a number cannot hold come and go as BigInt. Bytes go as base64.

const { randomBytes } = require("node:crypto")

// Stands before the digits of a BigInt while it is a string on its way; nobody else can have it.
const MARK = randomBytes(16).toString("hex")
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g")
const LONG = /\d{16}/
// Strings are passed over, so that digits in them stay what they are.
const INTEGERS = /"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g

function replacer(key, value) {
  if (typeof value === "bigint") return MARK + value
  const original = this[key]
  if (original instanceof Uint8Array) {
    return Buffer.from(original.buffer, original.byteOffset, original.byteLength).toString("base64")
  }
  return value
}

function reviver(_key, value) {
  return typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value
}

function marked(token) {
  return token[0] === '"' || Number.isSafeInteger(Number(token)) ? token : `"${MARK}${token}"`
}

function stringify(value) {
  const text = JSON.stringify(value, replacer)
  return text.includes(MARK) ? text.replace(MARKED, "$1") : text
}

function parse(text) {
  return LONG.test(text) ? JSON.parse(text.replace(INTEGERS, marked), reviver) : JSON.parse(text)
}

module.exports = { parse, stringify }
