import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const { THALWEG_URL: baseUrl, THALWEG_LONG_POLL_MS: longPollTimeoutMs } = process.env
runConformanceTests({ baseUrl, longPollTimeoutMs: Number(longPollTimeoutMs), subscriptions: true })
