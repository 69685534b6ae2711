"use strict"

// `thalweg serve` for tests: the program that is given by THALWEG_PROGRAM, in a folder of its own.

const { spawn } = require("node:child_process")
const { once } = require("node:events")
const { join } = require("node:path")
const { after, folder } = require("./helpers.js")

const home = process.env.THALWEG_PACKAGE
const part = (name) => require(home === undefined ? join(__dirname, `../lib/${name}/index.js`) : join(home, `lib/${name}/index.js`))

/** A server over a folder's data, whose state is called at each of `ways`. */
async function served(context, data = join(folder(context), "data")) {
  const words = ["serve", "--listen", "127.0.0.1:0", "--rpc", "on", "--durability", "os", "--log-level", "error"]
  const child = spawn(process.env.THALWEG_PROGRAM, [...words, "--data", data], { stdio: ["ignore", "pipe", "inherit"] })
  const ended = once(child, "exit")
  const end = async (signal = "SIGTERM") => {
    child.kill(signal)
    await ended
  }
  after(context, end)
  let said = ""
  for await (const chunk of child.stdout.iterator({ destroyOnReturn: false })) {
    said += chunk
    if (said.includes("limits: ")) break
  }
  child.stdout.resume()
  const url = said.split(/\s+/).find((word) => word.startsWith("http://"))
  return { url, data, end, ways: [join(data, "state.sock"), join(data, "state.shm"), `${url}/rpc/state`] }
}

module.exports = { rpc: part("rpc"), served, service: part("service"), state: part("state") }
