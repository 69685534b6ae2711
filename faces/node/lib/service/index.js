"use strict"

const { FAULTS } = require("../faults.js")
const { Client } = require("./client.js")
const { ServiceError } = require("./error.js")
const { Server } = require("./server.js")
const { SpawnError, spawn } = require("./spawn.js")
const { SyncClient } = require("./sync.js")

module.exports = { Client, FAULTS, Server, ServiceError, SpawnError, SyncClient, spawn }
