"use strict"

const { Session, StateError } = require("./session.js")

module.exports = { Session, StateError }
