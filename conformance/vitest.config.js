import { defineConfig } from "vitest/config"

// Set by the runner (`cargo xtask conformance`), which reads the report and prints what failed.
const report = process.env.THALWEG_REPORT

// Subscriptions are not built yet: their group is excluded by name, and the runner fails when fewer tests than
// expected have run.
export default defineConfig({
  test: {
    include: ["suite.test.js"],
    testNamePattern: /^(?!.*Reserved subscription APIs)/,
    testTimeout: 30_000,
    reporters: report ? ["json"] : ["default"],
    outputFile: report ? { json: report } : undefined,
    cache: false,
  },
})
