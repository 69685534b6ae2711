"use strict"

const { RpcClient } = require("./client.js")
const { RemoteError } = require("./error.js")
const { Schema } = require("./schema.js")

module.exports = { RemoteError, RpcClient, Schema }
