import service = require("thalweg/service")

service.Server.listen("a.sock", (frame, reply) => reply.end(frame)).then((server) => server.close())
