-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- Workers that resize images as fast as they can, and send them over a link that only two workers may use at a time.
--
--   images.lua                     five workers with three images each; prints how many were sending at the same time
--   images.lua work NAME IMAGES    one worker: start some in several terminals, on any machines
--
-- The broker is AMQP_URL, or on localhost. The token semaphore "image-link" is created with two permits if it is
-- absent.

local amqplocks = require "amqplocks"

local PERMITS, WORKERS, IMAGES = 2, 5, 3

local role, name, images = arg[1], arg[2], tonumber(arg[3])
io.stdout:setvbuf "line"

local function say(text) print(name, text) end

local function spend(seconds) assert(os.execute("sleep " .. seconds)) end

-- ---- a worker -------------------------------------------------------------------------------------------------------

local function send(lock, image)
  say("sends image " .. image)
  spend(0.2)
  say("has sent image " .. image)
  assert(lock:held())
end

local function work(link)
  for image = 1, images do
    spend(0.05) -- resizing, which needs no permit
    say("has resized image " .. image)
    assert(link:with({ timeout = 60 }, send, image))
  end
end

-- ---- all workers
-- -----------------------------------------------------------------------------------------------------

local function start()
  local command = ""
  for i = 1, WORKERS do
    command = command .. ('"%s" "%s" work worker-%d %d 2>&1 & '):format(arg[-1], arg[0], i, IMAGES)
  end
  return assert(io.popen(command .. "wait"))
end

-- Counts the lines that each worker prints while it holds a permit.
local function watch(workers)
  local sending, most, sent = 0, 0, 0
  for line in workers:lines() do
    print(line)
    if line:find "sends image" then sending = sending + 1 end
    if line:find "has sent image" then sending, sent = sending - 1, sent + 1 end
    most = math.max(most, sending)
  end
  return sent, most, PERMITS
end

local link = assert(amqplocks.connect()):token_semaphore "image-link"
if assert(link:slots()) == 0 then link:create(PERMITS) end
if role == "work" then
  work(link)
else
  print(("%d images sent, at most %d at a time, with %d permits"):format(watch(start())))
end
