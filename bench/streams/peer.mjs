// Serves streams as the npm package does: `node peer.mjs PORT LONG_POLL_MS [DIRECTORY]`, in memory without a directory.
import { DurableStreamTestServer } from "@durable-streams/server"

const [port, longPollTimeout, dataDir] = process.argv.slice(2)
const server = new DurableStreamTestServer({
  host: "127.0.0.1",
  port: Number(port),
  longPollTimeout: Number(longPollTimeout),
  ...(dataDir === undefined ? {} : { dataDir }),
})
await server.start()
