import thalweg = require("thalweg")

const store: thalweg.Store = thalweg.open("data")
store.close().catch((error: thalweg.ThalwegError) => console.log(error.code))
