"use strict"

const { CODES, ThalwegError } = require("./error.js")
const { open, verify } = require("./store.js")

module.exports = { CODES, ThalwegError, open, verify }
