"use strict"

const net = require("node:net")
const { join } = require("node:path")
const { after, folder, handOn } = require("./helpers.js")
// The package as users have it when it is installed, else the sources.
const installed = process.env.THALWEG_PACKAGE
const HOME = installed === undefined ? join(__dirname, "../lib/service/index.js") : join(installed, "lib/service/index.js")
const service = require(HOME)
const { Client, Server } = service

const bytes = (text) => Buffer.from(text)
const text = (frame) => Buffer.from(frame.buffer, frame.byteOffset, frame.byteLength).toString()
const HEADER_BYTES = 24
const KIND = { REQUEST: 1, ITEM: 2, END: 3, CANCEL: 4, CREDIT: 5, GOODBYE: 6 }

/** A place to listen that is gone after the test. */
function endpoint(context, kind = "sock") {
  return join(folder(context), `a.${kind}`)
}

/** A server that is closed after the test. */
async function serve(context, path, dispatch, options) {
  const server = await Server.listen(path, dispatch, options)
  after(context, () => server.close())
  return server
}

/** A client that is closed after the test. */
async function connect(context, path, options) {
  const client = await Client.connect(path, options)
  after(context, () => client.close())
  return client
}

/** Says back what it was asked. */
const echo = (frame, reply) => reply.end(frame)

/** A frame of the multiplexed protocol. */
function framed(kind, id, payload = Buffer.alloc(0), { fault = 0, length = payload.length } = {}) {
  const frame = Buffer.alloc(HEADER_BYTES + payload.length)
  frame.writeUInt32LE(length, 0)
  frame.writeUInt8(kind, 4)
  frame.writeUInt16LE(fault, 6)
  frame.writeBigUInt64LE(id, 8)
  frame.set(payload, HEADER_BYTES)
  return frame
}

function welcome({ fault = 0, version = 1, credit = 64, schema = Buffer.alloc(32) } = {}) {
  const bytes = Buffer.alloc(48)
  bytes.write("TwSv")
  bytes.writeUInt16LE(version, 4)
  bytes.writeUInt16LE(fault, 6)
  bytes.writeUInt32LE(credit, 12)
  bytes.set(schema, 16)
  return bytes
}

/** A server made by hand: says welcome, then hands each frame and its socket to `heard`. */
async function peer(context, path, heard, greeting = welcome()) {
  const sockets = new Set()
  const server = net.createServer((socket) => {
    sockets.add(socket)
    let received = Buffer.alloc(0)
    let isGreeted = false
    socket.on("error", () => {})
    socket.on("close", () => sockets.delete(socket))
    socket.on("data", (data) => {
      received = Buffer.concat([received, data])
      if (!isGreeted) {
        if (received.length < 48) return
        isGreeted = true
        received = received.subarray(48)
        socket.write(greeting)
      }
      while (received.length >= HEADER_BYTES) {
        const end = HEADER_BYTES + received.readUInt32LE(0)
        if (received.length < end) return
        const frame = received.subarray(0, end)
        received = received.subarray(end)
        const [id, credit] = [frame.readBigUInt64LE(8), frame.readUInt32LE(20)]
        heard({ kind: frame[4], id, credit, payload: frame.subarray(HEADER_BYTES) }, socket)
      }
    })
  })
  await new Promise((resolve) => server.listen(path, resolve))
  after(context, () => {
    for (const socket of sockets) socket.destroy()
    return new Promise((resolve) => server.close(resolve))
  })
}

/** The error that a promise rejects with. */
async function failure(promise) {
  try {
    await promise
  } catch (error) {
    return error
  }
  throw new Error("nothing failed")
}

module.exports = {
  ...service, HOME, KIND, after, bytes, connect, echo, endpoint, failure, folder, framed, handOn, peer, serve, text, welcome,
}
