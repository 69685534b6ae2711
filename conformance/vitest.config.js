import { defineConfig } from "vitest/config"

// Set by the runner (`cargo xtask conformance`), which reads the report and prints what failed.
const report = process.env.THALWEG_REPORT

export default defineConfig({
  test: {
    include: ["suite.test.js"],
    testTimeout: 30_000,
    reporters: report ? ["json"] : ["default"],
    outputFile: report ? { json: report } : undefined,
    cache: false,
  },
})
