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
        -- end: sources
      },
      defines = { "_GNU_SOURCE" },
      incdirs = { "src", "$(RABBITMQ_INCDIR)", "$(OPENSSL_INCDIR)" },
      libdirs = { "$(RABBITMQ_LIBDIR)", "$(OPENSSL_LIBDIR)" },
      libraries = { "rabbitmq", "ssl", "crypto", "pthread" },
    },
    -- begin: modules (`make rockspec` writes what stands here)
    -- end: modules
  },
}
