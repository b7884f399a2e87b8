-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The functions of the core that only compute (programs/deciders.c), of the objects of this build.
--
--     local deciders = require "spec.support.deciders"
--     teardown(deciders.remove)
--     deciders.deadline_after(now, 5e9)
--
-- Times are nanoseconds. `drawing(n)` is the random state from which n is drawn next.
local process = require "spec.support.process"

local rabbitmq_c = process.shell("pkg-config", "--cflags", "--libs", "librabbitmq"):gsub("\n", "")

local deciders = process.load_module("deciders", table.concat({ "-std=c11 -D_GNU_SOURCE -Isrc -Wall -Wextra -Wpedantic",
  "-Werror -Wl,--wrap=malloc", process.objects "src/core/*/*.c", rabbitmq_c }, " "))

--- Removes the module's file.
deciders.remove = process.remove_modules

return deciders
