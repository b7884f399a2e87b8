-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Turns journal lines into acts: which lock was held by which process, from when to when; who waited; which faults
-- struck. checker.lua reports what is wrong with these, and timeline.lua draws them.
--
-- A book has pools, holds, waits (by pool), strikes, acts of administrators (by pool), and so on: see `new`. A hold:
--     lane, base (the process's lane), op, pool, slot, kind, number
--     asked        when its lane began to wait for it; nil if it came by a downgrade
--     got          when the call returned                 let, how      when, and how, its release began
--     from, to     between which it was certainly held; nil: it was not checked
--     gone, gone_code          when it was seen not to be held, and why; nil if it was held again after that
--     lost         when it was first reported as lost for good
--     killed       when its holder was killed             into          what it was downgraded to
--     ended        when no process could report it as held any more
local digest = {}

local function base(lane) return (lane:match "^[^:]+") end

local function new()
  return {
    heartbeat = 1, pools = {}, holds = {}, waits = {}, strikes = {}, acts = {}, saws = {}, deadlines = {}, stalls = {},
    stalled = 0, answers = {}, counts = {}, left = {}, unexplained = {}, flavours = {}, held_of = {},
    processes = 0, wait_count = 0, calm = math.huge,
    open = {}, -- by lane and op: acts that have begun and not ended
    alive = {}, -- by base: lanes that have not ended
    struck = {}, -- by op
  }
end

local function key(record) return record.lane .. " " .. tostring(record.op) end

local function thing(book, record)
  local one = book.open[key(record)]
  local problem = "%s: %s of %s, which did not begin"
  return one or error(problem:format(record.lane, record.act, tostring(record.op)), 0)
end

local function begin_deadline(one, record, what)
  if not record.within then return end
  one.deadline = { lane = record.lane, base = base(record.lane), what = what, pool = one.pool, from = record.at,
    within = record.within }
end

local function end_deadline(book, one, record)
  if not one.deadline then return end
  one.deadline.to = record.at
  table.insert(book.deadlines, one.deadline)
  one.deadline = nil
end

local function answer(book, one, record, what)
  if record.code then
    table.insert(book.answers, {
      lane = record.lane, base = base(record.lane), act = record.act, what = what, pool = one.pool,
      from = one.began or one.asked or record.at, at = record.at, within = one.timeout,
      code = record.code, message = record.message, probe = one.probe,
    })
  end
end

local function begin(book, record, fields)
  fields.lane, fields.base, fields.op, fields.began = record.lane, base(record.lane), record.op, record.at
  book.open[key(record)] = fields
  return fields
end

local function hold(book, one, fields)
  for name, value in pairs(fields) do one[name] = value end
  table.insert(book.holds, one)
  one.number, one.is_hold = #book.holds, true
  book.held_of[one.pool] = (book.held_of[one.pool] or 0) + 1
end

local function end_wait(book, one, at)
  if not one.is_wait then return end
  one.is_wait = false
  book.waits[one.pool] = book.waits[one.pool] or {}
  book.wait_count = book.wait_count + 1
  table.insert(book.waits[one.pool], {
    lane = one.lane, base = one.base, pool = one.pool, from = one.asked, to = at, poll = one.poll, way = one.way,
  })
end

local read = {}

function read.begins(book, record) book.heartbeat = record.heartbeat or book.heartbeat end

function read.pool(book, record)
  book.pools[record.pool] = { name = record.pool, kind = record.kind, least = record.least, most = record.most }
end

function read.sits(book, record)
  book.processes = book.processes + 1
  book.flavours[record.about], book.alive[record.about] = record.flavour, {}
end

function read.ask(book, record)
  local one = begin(book, record, { pool = record.pool, way = record.way, asked = record.at, poll = record.poll,
    probe = record.probe })
  one.is_wait = not (record.way:match "^try" or record.way == "declare")
  one.timeout = one.is_wait and record.within or nil
  begin_deadline(one, record, record.way .. " of " .. record.pool)
end

function read.got(book, record)
  local one = thing(book, record)
  end_deadline(book, one, record)
  end_wait(book, one, record.at)
  hold(book, one, { got = record.at, slot = record.slot, kind = record.kind, fence = record.fence,
    permit = record.permit })
end

function read.none(book, record)
  local one = thing(book, record)
  end_deadline(book, one, record)
  end_wait(book, one, record.at)
  if one.way ~= "declare" then answer(book, one, record, one.way) end
  book.open[key(record)] = nil
end

function read.held(book, record)
  local one = thing(book, record)
  one.from, one.to = one.from or record.at, record.from
  one.gone, one.gone_code = nil, nil
end

function read.gone(book, record)
  local one = thing(book, record)
  one.gone, one.gone_code = record.at, record.code
  one.lost = one.lost or record.code == "lost" and record.at or nil
end

function read.let(book, record)
  local one = thing(book, record)
  one.let, one.how = record.at, record.how
  begin_deadline(one, record, record.how)
  if record.how == "exit" then book.alive[base(record.lane)].exits = true end
end

function read.free(book, record)
  local one = thing(book, record)
  end_deadline(book, one, record)
  answer(book, one, record, one.how)
  one.freed, book.open[key(record)] = record.at, nil
end

function read.verify(book, record) begin_deadline(thing(book, record), record, "verify") end

function read.verified(book, record)
  local one = thing(book, record)
  end_deadline(book, one, record)
  answer(book, one, record, "verify")
end

function read.downgrade(book, record)
  local one = thing(book, record)
  one.turned, one.to_be = record.at, record.into
  begin_deadline(one, record, "downgrade")
end

-- A downgrade has no moment in which nothing is held.
function read.downgraded(book, record)
  local one = thing(book, record)
  end_deadline(book, one, record)
  answer(book, one, record, "downgrade")
  if record.code then return end
  local into = begin(book, { lane = record.lane, op = one.to_be, at = record.at }, { pool = one.pool })
  hold(book, into, { got = one.turned, kind = "read" })
  one.freed, one.into, book.open[key(record)] = record.at, into, nil
end

local function act(name, after)
  read[name] = function(book, record) begin_deadline(begin(book, record, {}), record, name) end
  read[after] = function(book, record)
    local one = thing(book, record)
    end_deadline(book, one, record)
    answer(book, one, record, name)
    book.open[key(record)] = nil
  end
end
act("connect", "connected")
act("close", "closed")

function read.admin(book, record)
  local slots = record.action == "resize" and record.slots or nil
  local work = { action = record.action, from = record.at, to = math.huge, slots = slots, lane = record.lane }
  local one = begin(book, record, { pool = record.pool, act = work })
  begin_deadline(one, record, record.action .. " of " .. record.pool)
  book.acts[record.pool] = book.acts[record.pool] or {}
  table.insert(book.acts[record.pool], one.act)
end

function read.done(book, record)
  local one = thing(book, record)
  end_deadline(book, one, record)
  answer(book, one, record, one.act.action)
  one.act.to, one.act.result, book.open[key(record)] = record.at, not record.code, nil
end

function read.saw(book, record) table.insert(book.saws, record) end

function read.stall(book, record)
  table.insert(book.stalls, record)
  book.stalled = book.stalled + record.seconds
end

function read.strike(book, record)
  local strike = { op = record.op, from = record.at, to = math.huge, fault = record.fault, excuse = record.excuse,
    lane = record.about, pool = record.pool, slot = record.slot, hinders = record.hinders, node = record.node,
    robs = record.robs ~= nil }
  book.struck[record.op] = strike
  table.insert(book.strikes, strike)
  if record.fault == "admin" or record.fault == "crash" or record.fault == "restart" then
    book.can_lose_permits = true end
end

function read.over(book, record) book.struck[record.op].to = record.at end

function read.kill(book, record) book.alive[record.about].killed = record.at end

-- The acts that a lane has begun and not ended.
local function each_open(book, lane, fn)
  for name, one in pairs(book.open) do
    if one.base == lane then fn(one, name) end
  end
end

-- Ends all of these.
local function end_all(book, lane, fn)
  each_open(book, lane, function(one, name)
    fn(one)
    book.open[name] = nil
  end)
end

local function unexplained(book, record, text, pool)
  text = ("%s: %s"):format(record.about, text)
  table.insert(book.unexplained, { lane = record.about, at = record.at, pool = pool, text = text })
end

function read.dead(book, record)
  local about = book.alive[record.about]
  end_all(book, record.about, function(one)
    end_wait(book, one, about.killed or record.at)
    if one.act then one.act.to = record.at end
    if one.is_hold then one.killed, one.ended = about.killed, about.killed or record.at end
    if one.deadline and about.killed then
      end_deadline(book, one, { at = about.killed })
    elseif one.deadline and not about.exits then
      unexplained(book, record, "it ended during " .. one.deadline.what)
    end
  end)
  if not about.killed and (record.message or not (about.exits or about.ends)) then
    unexplained(book, record, "the process ended: " .. (record.message or "without a word"))
  end
end

-- For each thing that it waits for, since one may be excused and another not.
function read.stays(book, record)
  local text, waits = "it did not end when it was told to " .. (record.message or ""), 0
  each_open(book, record.about, function(one)
    if not one.is_wait then return end
    waits = waits + 1
    unexplained(book, record, ("%s: %s of %s"):format(text, one.way, one.pool), one.pool)
  end)
  if waits == 0 then unexplained(book, record, text) end
end

-- A witness had an error, and begins again.
function read.trouble(book, record)
  end_all(book, record.lane, function(one)
    if one.is_hold then one.ended = record.at end
  end)
end

read["end"] = function(book, record)
  local about = book.alive[base(record.lane)]
  if about then about.ends = true end
end

function read.quiet(book, record) book.calm = record.at end

function read.count(book, record)
  book.counts[record.pool] = book.counts[record.pool] or {}
  table.insert(book.counts[record.pool], record)
end

function read.left(book, record) table.insert(book.left, record) end

-- The end of a hold whose process was not killed. A lost lock is lost for good; a lock in doubt may be held again.
local function ending(one)
  if one.gone_code == "lost" then return one.gone end
  return one.ended or one.freed or math.huge
end

local function finish(book)
  for _, one in ipairs(book.holds) do
    one.ended = ending(one)
    one.how = one.how or one.killed and "SIGKILL" or nil
  end
  book.hindering = {}
  for _, strike in ipairs(book.strikes) do
    strike.to = math.min(strike.to, book.last)
    if strike.hinders then table.insert(book.hindering, strike) end
  end
  for _, waits in pairs(book.waits) do table.sort(waits, function(a, b) return a.from < b.from end) end
end

--- The book of these records, which are in the order of time.
function digest.of(records)
  local book = new()
  book.first = records[1] and records[1].at or 0
  book.last = records[#records] and records[#records].at or 0
  for _, record in ipairs(records) do
    if read[record.act] then read[record.act](book, record) end
  end
  finish(book)
  return book
end

return digest
