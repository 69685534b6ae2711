"use strict"

const { CODES, ThalwegError } = require("./error.js")
const { backup, parse, restore, verify } = require("./offline.js")
const { open } = require("./store.js")

module.exports = { CODES, ThalwegError, backup, open, parse, restore, verify }
