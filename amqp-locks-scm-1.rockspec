-- SPDX-FileCopyrightText: the amqp-locks authors
-- SPDX-License-Identifier: MIT

rockspec_format = "3.0"
package = "amqp-locks"
version = "scm-1"
source = {
  url = ".",
}
description = {
  summary = "Distributed semaphores, mutexes and readers-writer locks held in RabbitMQ",
  license = "MIT",
}
dependencies = {
  "lua >= 5.1",
}
external_dependencies = {
  RABBITMQ = { header = "amqp.h", library = "rabbitmq" },
  OPENSSL = { header = "openssl/ssl.h", library = "ssl" },
}
build = {
  type = "builtin",
  modules = {
    ["amqplocks.core"] = {
      sources = {
        -- begin: sources (`make rockspec` writes what stands here)
        "src/core/acquire.c",
        "src/core/admin.c",
        "src/core/admin_bell.c",
        "src/core/admin_mutex.c",
        "src/core/barrier.c",
        "src/core/bell.c",
        "src/core/change.c",
        "src/core/channel.c",
        "src/core/claim.c",
        "src/core/code.c",
        "src/core/collector.c",
        "src/core/downgrade.c",
        "src/core/durable.c",
        "src/core/exclusive.c",
        "src/core/field.c",
        "src/core/gate.c",
        "src/core/handshake.c",
        "src/core/harvest.c",
        "src/core/ids.c",
        "src/core/ledger.c",
        "src/core/link.c",
        "src/core/lock.c",
        "src/core/look.c",
        "src/core/mint.c",
        "src/core/mutex.c",
        "src/core/name.c",
        "src/core/op.c",
        "src/core/patience.c",
        "src/core/permit.c",
        "src/core/probe.c",
        "src/core/random.c",
        "src/core/reader.c",
        "src/core/released.c",
        "src/core/rwlock.c",
        "src/core/semaphore.c",
        "src/core/session.c",
        "src/core/settings.c",
        "src/core/sight.c",
        "src/core/squat.c",
        "src/core/survey.c",
        "src/core/taker.c",
        "src/core/token_admin.c",
        "src/core/token_plan.c",
        "src/core/token_semaphore.c",
        "src/core/token_work.c",
        "src/core/wait.c",
        "src/core/writer.c",
        "src/transport/bytes.c",
        "src/transport/fork.c",
        "src/transport/keeper.c",
        "src/transport/loop.c",
        "src/transport/native.c",
        "src/transport/output.c",
        "src/transport/socket.c",
        "src/transport/system.c",
        "src/transport/tls.c",
        "src/lua/acquiring.c",
        "src/lua/admin.c",
        "src/lua/compat.c",
        "src/lua/lock.c",
        "src/lua/module.c",
        "src/lua/mutex.c",
        "src/lua/operation.c",
        "src/lua/rwlock.c",
        "src/lua/semaphore.c",
        "src/lua/session.c",
        "src/lua/token_admin.c",
        "src/lua/token_semaphore.c",
        -- end: sources
      },
      defines = { "_GNU_SOURCE" },
      incdirs = { "src", "$(RABBITMQ_INCDIR)", "$(OPENSSL_INCDIR)" },
      libdirs = { "$(RABBITMQ_LIBDIR)", "$(OPENSSL_LIBDIR)" },
      libraries = { "rabbitmq", "ssl", "crypto", "pthread" },
    },
    -- begin: modules (`make rockspec` writes what stands here)
    ["amqplocks.acquiring"] = "lua/amqplocks/acquiring.lua",
    ["amqplocks.admin"] = "lua/amqplocks/admin.lua",
    ["amqplocks.await"] = "lua/amqplocks/await.lua",
    ["amqplocks.connection"] = "lua/amqplocks/connection.lua",
    ["amqplocks"] = "lua/amqplocks/init.lua",
    ["amqplocks.lock"] = "lua/amqplocks/lock.lua",
    ["amqplocks.losses"] = "lua/amqplocks/losses.lua",
    ["amqplocks.mutex"] = "lua/amqplocks/mutex.lua",
    ["amqplocks.options"] = "lua/amqplocks/options.lua",
    ["amqplocks.rwlock"] = "lua/amqplocks/rwlock.lua",
    ["amqplocks.scope"] = "lua/amqplocks/scope.lua",
    ["amqplocks.semaphore"] = "lua/amqplocks/semaphore.lua",
    ["amqplocks.token_semaphore"] = "lua/amqplocks/token_semaphore.lua",
    ["amqplocks.drivers.native"] = "lua/amqplocks/drivers/native.lua",
    -- end: modules
  },
}
