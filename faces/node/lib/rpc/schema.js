"use strict"

// What a schema says about the way between JSON and frames: any service is called over a socket without generated code.

const binding = require("../binding.js")
const { badArgument, native } = require("../service/error.js")
const { isLeftOut } = require("../service/options.js")
const { checkMethod, params } = require("./client.js")
const { parse } = require("./json.js")

class Schema {
  /** From the text of a schema; that of the state, unless it is given. */
  constructor(text, name) {
    for (const given of [text, name]) {
      if (!isLeftOut(given) && typeof given !== "string") throw badArgument("a schema is text, and so is its name")
    }
    this.native = native(() => new binding.SchemaText(text, name))
    this.hash = this.native.hash()
  }

  /** The frame of a request. */
  request(method, given) {
    checkMethod(method)
    const text = params(given)
    return native(() => this.native.request(method, text))
  }

  /** What a frame that answers a method says. */
  result(method, frame) {
    checkMethod(method)
    if (!(frame instanceof Uint8Array)) throw badArgument("a frame is a Uint8Array")
    const bytes = Buffer.from(frame.buffer, frame.byteOffset, frame.byteLength)
    return parse(native(() => this.native.result(method, bytes)))
  }
}

module.exports = { Schema }
