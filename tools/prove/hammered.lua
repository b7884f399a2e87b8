-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- `make prove-fenced`, `make prove-fast` and `make prove-many`: the hammer (hammer.lua) on a RabbitMQ of its own, or
-- the one of $AMQP_URL. $KIND is "fenced"; "fast": fast mutexes, to whose queues strangers publish, and which they
-- purge; or "many": a semaphore of five slots, of which two clients take three at once and six clients one, while a
-- witness that is not the library looks at the queues of eight slots.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local hammer = require "tools.prove.hammer"
local process = require "spec.support.process"
local settings = require "tools.prove.settings"
local socket = require "socket"

local STRANGERS_COME = 0.02 -- seconds
local MANY_CLIENTS, MINUTE = 8, 60 -- seconds
local LOOKED_AT = 8 -- slots
local FAST = 8 -- names: a stopped holder keeps those who want its name waiting

local function say(...) print((...):format(select(2, ...))) end

local kind = os.getenv "KIND"
local seconds = settings.seconds(os.getenv "SECONDS") or 60
local seed = settings.seed(os.getenv "SEED") or os.time()
local least = tonumber(os.getenv "LEAST" or "") or 0
local url = os.getenv "AMQP_URL"
local own = (not url or url == "") and broker.start() or nil
local wanted = { urls = { own and own.url or url }, seconds = seconds, seed = seed,
  directory = ("%s/%s-%d"):format(os.getenv "PROVE" or "build/prove", kind, seed) }
if own then wanted.cut = function(name) own:close_connection(name) end end

local strangers = { published = 0, purges = 0 }

-- A stranger who puts a token into the queue of a fast mutex, or takes all that are ready away.
local function stranger()
  local raw, comes_at = assert(client.connect(wanted.urls[1])), 0
  local channel = raw:channel()
  return function()
    if socket.gettime() < comes_at then return end
    comes_at = socket.gettime() + STRANGERS_COME
    local queue = ("%s.%d-fastmutex"):format(wanted.prefix, math.random(#wanted.kinds))
    if math.random() < 0.7 then
      channel:publish{ routing_key = queue, body = "a stranger's" }
      strangers.published = strangers.published + 1
    elseif channel:call{ method = "queue.purge", queue = queue } then
      strangers.purges = strangers.purges + 1
    else -- the queue was not made yet, and the broker has closed the channel
      channel = raw:channel()
    end
    raw:flush()
  end
end

local seen = { looks = 0, most = 0 }

-- The witness: an AMQP client of its own. It counts the slots that are held, also those that should not exist.
local function witness()
  local raw = assert(client.connect(wanted.urls[1]))
  return function()
    local held = 0
    for slot = 1, LOOKED_AT do
      if raw:probe(("%s.1-%d-B"):format(wanted.prefix, slot), { expiration = "0" }) ~= "absent" then held = held + 1 end
    end
    seen.looks, seen.most = seen.looks + 1, math.max(seen.most, held)
  end
end

if kind == "many" then
  wanted.kinds, wanted.prefix, wanted.during = { "many" }, client.unique "hammered", witness()
  wanted.clients, wanted.lanes, wanted.minute = MANY_CLIENTS, MANY_CLIENTS, MINUTE
elseif kind == "fast" then
  wanted.kinds, wanted.prefix, wanted.during = {}, client.unique "hammered", stranger()
  for i = 1, FAST do wanted.kinds[i] = "fast_mutex" end
else
  wanted.forgets = 2
end

io.stdout:setvbuf "line"
say("seed %d, for %g s", seed, seconds)
local fine, result = pcall(hammer.run, wanted)
if own then own:remove() end
process.remove_modules()
if not fine then
  print(result)
  os.exit(2)
end
hammer.tell(result, say)
if kind == "fast" then say("strangers: %d messages, %d purges", strangers.published, strangers.purges) end
if kind == "many" then
  say("the witness looked %d times, and saw at most %d slots held", seen.looks, seen.most)
  if seen.most > 5 then table.insert(result.violations, "the witness") end
end
say("the ledgers: %s", wanted.directory)
if result.got < least then say("too few locks to tell: fewer than %d", least) end
os.exit(#result.violations == 0 and result.got >= least and 0 or 1)
