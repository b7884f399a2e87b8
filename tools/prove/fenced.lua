-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- `make prove-fenced`: the hammer (hammer.lua) on a RabbitMQ of its own, or the one of $AMQP_URL.
local broker = require "spec.support.broker"
local hammer = require "tools.prove.hammer"
local process = require "spec.support.process"
local settings = require "tools.prove.settings"

local function say(...) print((...):format(select(2, ...))) end

local seconds = settings.seconds(os.getenv "SECONDS") or 60
local seed = settings.seed(os.getenv "SEED") or os.time()
local least = tonumber(os.getenv "LEAST" or "") or 0
local url = os.getenv "AMQP_URL"
local own = (not url or url == "") and broker.start() or nil
local directory = ("%s/fenced-%d"):format(os.getenv "PROVE" or "build/prove", seed)

io.stdout:setvbuf "line"
say("seed %d, for %g s", seed, seconds)
local fine, result = pcall(hammer.run, { urls = { own and own.url or url }, directory = directory, seconds = seconds,
  seed = seed, forgets = 2 })
if own then own:remove() end
process.remove_modules()
if not fine then
  print(result)
  os.exit(2)
end
hammer.tell(result, say)
say("the ledgers: %s", directory)
if result.got < least then say("too few locks to tell: fewer than %d", least) end
os.exit(#result.violations == 0 and result.got >= least and 0 or 1)
