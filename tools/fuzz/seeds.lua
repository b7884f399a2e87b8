-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Initial programs for the fuzzing target "session": sessions in which nearly everything succeeds. The fuzzer finds
-- the failures.
--
--     lua seeds.lua DIRECTORY
--
-- The notation is session.c's: four settings, then instructions { operation, a, b, c }.

local BEGIN, ANSWER, LOCK, TIME, WORLD, OP, LIE, SAY, MODE, RAW, CONTENT, CORRUPT, SESSION =
  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12

-- The operations that can be begun, by number.
local KINDS = { semaphore = 0, token = 1, mutex = 2, read = 3, write = 4, create = 5, add = 6, remove = 7, resize = 8,
  destroy = 9, repair = 10, slots = 11, status = 12, wait_released = 13, revoke = 14, token_create = 15, token_add = 16,
  token_remove = 17, token_resize = 18, token_destroy = 19, token_repair = 20, token_slots = 21, open = 22, close = 23,
  forget_mutex_fence = 24, forget_rwlock_fence = 25, forget_fence = 26, mend_fence = 27 } -- the last four: if fenced
local ACQUIRES = { "semaphore", "token", "mutex", "read", "write" }
local ADMIN = { "add", "remove", "resize", "destroy", "repair", "slots", "status", "wait_released", "revoke" }
local TOKEN_ADMIN = { "token_add", "token_remove", "token_resize", "token_destroy", "token_repair", "token_slots" }

-- Options: of an acquire, and (by the lower bits of the number) of an action of administration.
local FOR_EVER, ONCE, FIVE_SECONDS, FAIR = 0, 1, 2, 8
local REVOKES, WAITS = 4, 16
-- What may be done with a lock.
local RELEASE, VERIFY, DOWNGRADE, DROP = 0, 1, 2, 3
-- Actions of other clients on queues: numbers of the fuzzing target's list.
local HOLD, LET_GO, DELETE, DECLARE, PUBLISH, CLOSE, CLOSE_CHANNEL, BLOCK, PURGE, RESET = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
local QUEUES = { semaphore = 1, token = 8, mutex = 11, read = 13, write = 13 }
local ANSWERED = 2  -- the broker answers while time passes

local function begin(kind, options, session) return { BEGIN, KINDS[kind], (session or 0) * 4, options or 0 } end
local function all() return { ANSWER, 0, 0, 0 } end
local function lock(which, what) return { LOCK, which, what, 0 } end
local function pass(time, how) return { TIME, time, how or ANSWERED, 0 } end
local function world(what, which, how) return { WORLD, what, which, how or 0 } end

local unpack = table.unpack or unpack

local directory = assert(arg[1], "seeds.lua DIRECTORY")

local function write(name, ...)
  local file = assert(io.open(("%s/seed-%s"):format(directory, name), "wb"))
  for _, i in ipairs { ... } do file:write(string.char(i[1], i[2] or 0, i[3] or 0, i[4] or 0)) end
  file:close()
end

-- The four kinds of ends, and with two sessions, the second of which asks by the prober of the first.
local function heads(name, write_one)
  for ending = 0, 3 do
    for lends = 0, 1 do
      write_one(("%s-%d%d"):format(name, ending, lends), { ending * 64 + lends * 2, 0, 0, 7 }, lends)
    end
  end
end

for _, kind in ipairs(ACQUIRES) do
  heads(kind, function(name, head, other)
    local first, second = begin(kind, FOR_EVER), begin(kind, FIVE_SECONDS, other)
    write(name .. "-one", head, begin "create", all(), begin "token_create", all(), first, all(), lock(0, VERIFY),
      all(), second, all(), pass(4), lock(0, RELEASE), pass(5), lock(1, DOWNGRADE), all(), pass(3))
    write(name .. "-waits", head, begin("create", 1), all(), begin("token_create", 1), all(),
      world(HOLD, QUEUES[kind]), first, all(), pass(4), world(LET_GO, QUEUES[kind]), pass(5), lock(0, DROP), all(),
      begin(kind, FAIR), all(), world(RESET, 0), pass(5))
    write(name .. "-once", head, begin(kind, ONCE), all(), world(DECLARE, QUEUES[kind]), begin(kind, ONCE), all(),
      world(DELETE, QUEUES[kind]), begin(kind, ONCE), all(), lock(0, RELEASE), lock(0, RELEASE), all())
    write(name .. "-bad", head, begin "create", all(), begin "token_create", all(), first, all(), world(BLOCK, 1, 1),
      second, pass(4), world(BLOCK, 1, 0), pass(4), world(CLOSE_CHANNEL, 0, 0), all(), world(CLOSE, 0, 6), pass(5))
  end)
end

-- The channel is closed after the broker has answered so many requests; the requests that would undo the claim are
-- refused, too.
for _, kind in ipairs(ACQUIRES) do
  for answered = 1, 8 do
    local steps = { begin "create", all(), begin "token_create", all(), begin(kind, FIVE_SECONDS) }
    for i = 1, answered do table.insert(steps, { ANSWER, i % 2 == 0 and 0 or 1, 0, i % 2 == 0 and 1 or 64 }) end
    for channel = 0, 2 do table.insert(steps, world(CLOSE_CHANNEL, 0, channel)) end
    write(("%s-cut-%d"):format(kind, answered), { 0, 0, 0, 7 }, unpack(steps))
    for lie = 0, 4 do table.insert(steps, { LIE, 0, 0, lie < 3 and 2 or lie - 3 }) end
    write(("%s-cut-for-good-%d"):format(kind, answered), { 0, 0, 0, 7 }, unpack(steps))
  end
end

-- Every request of every operation is refused once, by its number, in each possible way.
local REFUSED, REFUSALS = 0, 5
for kind in pairs(KINDS) do
  for answered = 0, 6 do
    local steps = { begin("create", 2), all(), begin("token_create", 2), all(), begin(kind, 2) }
    for _ = 1, answered do
      table.insert(steps, { ANSWER, 1, 0, 64 })
      table.insert(steps, { ANSWER, 0, 0, 1 })
    end
    table.insert(steps, { LIE, answered % 3 == 2 and 1 or 0, REFUSED, (answered + KINDS[kind]) % REFUSALS })
    table.insert(steps, { LIE, 0, REFUSED, (answered + KINDS[kind] + 1) % REFUSALS })
    write(("%s-refused-%d"):format(kind, answered), { 0, 0, 0, 7 }, unpack(steps))
  end
end

for _, action in ipairs(ADMIN) do
  heads(action, function(name, head)
    write(name, head, begin("create", 2), all(), begin "semaphore", all(), begin(action, WAITS + REVOKES), all(),
      pass(4), lock(0, RELEASE), pass(5), { OP, 2, 0 })
    write(name .. "-gap", head, begin("create", 4), all(), world(DELETE, 2), begin(action, 1), pass(4), { OP, 1, 0 })
  end)
end

for _, action in ipairs(TOKEN_ADMIN) do
  heads(action, function(name, head)
    write(name, head, begin("token_create", 2), all(), begin "token", all(), begin(action, WAITS + 1), all(), pass(4),
      lock(0, RELEASE), pass(5), { OP, 2, 0 })
    write(name .. "-foreign", head, world(DECLARE, 8), world(PUBLISH, 8, 64 + 3), begin(action, WAITS), pass(5),
      world(PURGE, 8), begin(action, 2), pass(5))
  end)
end

-- Fenced locks: the fourth setting's highest bit. Connections 3 and 4 are those of the fence and of its maker.
local FENCED, FENCE, MAKER = 128 + 7, 3, 4
local FENCES = { semaphore = 17, mutex = 18, read = 19, write = 19 } -- numbers of world()
local FORGETS = { semaphore = "forget_fence", mutex = "forget_mutex_fence", read = "forget_rwlock_fence",
  write = "forget_rwlock_fence" }

for kind, fence in pairs(FENCES) do
  for ending = 0, 3 do
    for lends = 0, 1 do
      local head, name = { ending * 64 + lends * 2, 0, 0, FENCED }, ("%s-fenced-%d%d-"):format(kind, ending, lends)
      local first, again = begin(kind, FOR_EVER), begin(kind, FIVE_SECONDS, lends)
      write(name .. "one", head, begin "create", all(), first, all(), lock(0, VERIFY), all(), lock(0, RELEASE), all(),
        again, all(), lock(1, RELEASE), all(), again, all(), pass(7))
      write(name .. "anew", head, begin "create", all(), first, all(), lock(0, RELEASE), all(), world(PURGE, fence),
        again, pass(5), pass(5), pass(5), world(DELETE, fence), again, all(), pass(5), begin(FORGETS[kind]), all(),
        again, all(), begin "mend_fence", all(), pass(5))
      write(name .. "foreign", head, begin "create", all(), world(DECLARE, fence), first, pass(5), pass(5), pass(5),
        world(PUBLISH, fence, 5), again, all(), world(DELETE, fence), again, all(), world(HOLD, 20), again, pass(5),
        world(LET_GO, 20), pass(5))
      write(name .. "lost", head, begin "create", all(), first, { ANSWER, 0, 0, 64 }, world(RESET, FENCE), all(),
        again, world(RESET, MAKER), all(), world(CLOSE, FENCE, 5), again, all(), pass(6), world(BLOCK, MAKER, 1),
        again, all())
    end
  end
  for connection = FENCE, MAKER do
    for answered = 0, 12 do
      for lie = 0, 8 do
        write(("%s-fenced-lie-%d-%d-%d"):format(kind, connection, answered, lie), { lie % 4 * 64, 0, 0, FENCED },
          begin "create", all(), begin(kind, FIVE_SECONDS), { ANSWER, 0, 0, 64 }, { ANSWER, 1, 0, 64 },
          { ANSWER, 0, 0, 64 }, { ANSWER, FENCE, 0, connection == FENCE and answered or 64 },
          { ANSWER, MAKER, 0, answered }, { LIE, connection, lie, answered }, pass(4), all(),
          begin(kind, ONCE), all(), pass(5))
      end
    end
  end
end

-- Permits of a quorum queue (which the second name selects), which is asked itself; and its possible answers.
for refusal = 0, 2 do
  local create, acquire = { BEGIN, KINDS.token_create, 1, 1 }, { BEGIN, KINDS.token, 1, ONCE }
  local lie = { LIE, 0, REFUSED, refusal }
  write("quorum-" .. refusal, { 0, 0, 0, 7 }, create, all(), acquire, all(), lock(0, VERIFY), all(), acquire, all(),
    lock(0, VERIFY), { ANSWER, 0, 0, 1 }, lie, all(), acquire, { ANSWER, 0, 0, 4 }, lie, lie, all())
end

write("settings", { 9, 1 + 4 * 2, 1, 1 }, begin "open", all(), begin("mutex", 0), all(), begin("read", 1), all(),
  begin "close", all())
write("passive", { 0, 0, 2, 1 }, begin("create", 2), all(), begin "semaphore", all(), begin "mutex", all(),
  begin "write", all(), pass(5))
write("pieces", { 0, 0, 0, 1 }, { MODE, 1, 1 }, begin "write", all(), begin "close", all())
write("late", { 0, 128, 0, 1 }, begin("mutex", 32), pass(6), begin("create", 64 + 16), pass(6))
write("lies", { 0, 0, 0, 1 }, begin "mutex", { LIE, 0, 0, 1 }, { LIE, 1, 3, 1 }, { ANSWER, 0, 1, 3 }, { LIE, 2, 7, 3 })
write("raving", { 64, 0, 0, 1 }, begin "open", { SAY, 0, 0, 0 }, { 0, 9, 0, 0 }, { 0 }, all(), begin "read", all(),
  { CONTENT, 0, 0, 1 }, { 64, 1, 0, 0 }, { 0, 1, 2, 9 }, { MODE, 0, 1 }, begin "write", all(), { CORRUPT, 0, 9, 255 },
  { MODE, 0, 0 }, all())
write("raw", { 128, 0, 0, 1 }, begin "open", { RAW, 0, 1 }, { 1, 0, 0, 0 }, { 0, 0, 4, 0 }, all(), { SESSION, 0, 0 })
