-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Locks in Redis, 5 or later. A step is one script, which the server executes atomically.
--
-- Two keys for each resource. The first is a text, "ticket,milliseconds", with the ticket "readers" while readers are
-- in. The second, a hash, is there only for readers: the field of each reader is its ticket, and its value the time it
-- came; the field " pending" is "ticket,milliseconds" of the writer that waits. (No ticket contains a space.) In a
-- cluster both are in one slot.
local client = require "dblocks.client"
local doorman = require "dblocks.doorman"
local late = require "dblocks.late"

local redis = setmetatable({}, client)
redis.__index = redis

-- Every script gets a mark as its first argument, and returns it with its answer. A reply that bears another mark is
-- that of another question: some clients, after a timeout, take the old reply for the next one.
local NOW = [[
local function text(milliseconds) return string.format("%.0f", milliseconds) end
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
]]

-- Further arguments: the verb; the ticket; until when it may act; since when the ticket holds the lock, or "".
--
-- A script that fails halfway is not undone: a user may have the right to SET and not to DEL. So what decides who holds
-- the lock is the last command of each deed. What comes before it changes nothing for anybody.
local STEP = doorman.source .. NOW .. [[
local PENDING = " pending"
local mark, verb, mine, expiry, held_since = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local function stamped(text)
  if not text then return nil end
  local ticket, at = text:match("^([^,]+),(%d+)$")
  if not ticket then error("this key is not of dblocks") end
  return ticket, tonumber(at)
end

if now >= expiry then return { mark, "late", text(now) } end
local ticket, acquired_at = stamped(redis.call("GET", KEYS[1]))
local pending, pending_at, inside, since
if ticket == nil or ticket == "readers" then
  pending, pending_at = stamped(redis.call("HGET", KEYS[2], PENDING))
  inside = redis.call("HLEN", KEYS[2]) - (pending and 1 or 0)
  since = tonumber(redis.call("HGET", KEYS[2], mine) or nil)
end
local row
if ticket then
  row = { ticket = ticket, acquired_at = acquired_at, since = since, pending = pending, pending_at = pending_at }
  if inside ~= 0 then row.inside = inside end
elseif pending then
  row = { ticket = "readers", inside = 0, pending = pending, pending_at = pending_at }
end

local outcome, deed, detail = decide(row, verb, mine, now, held_since)

if deed == "alone" then
  if pending or inside > 0 then redis.call("DEL", KEYS[2]) end
  redis.call("SET", KEYS[1], mine .. "," .. text(now))
elseif deed == "enter" then
  if not ticket and inside > 0 then
    redis.call("DEL", KEYS[2])
    if pending then redis.call("HSET", KEYS[2], PENDING, pending .. "," .. text(pending_at)) end
  end
  redis.call("HSET", KEYS[2], mine, text(now))
  if not ticket then redis.call("SET", KEYS[1], "readers," .. text(now)) end
elseif deed == "renew" and since then
  redis.call("HSET", KEYS[2], mine, text(detail))
elseif deed == "renew" then
  redis.call("SET", KEYS[1], mine .. "," .. text(detail))
elseif deed == "share" then
  redis.call("HSET", KEYS[2], mine, text(acquired_at))
  redis.call("SET", KEYS[1], "readers," .. text(acquired_at))
elseif deed == "exit" then
  if inside == 1 then redis.call("DEL", KEYS[1]) end
  local done = redis.pcall("HDEL", KEYS[2], mine)
  if type(done) == "table" and inside == 1 then redis.call("SET", KEYS[1], "readers," .. text(acquired_at)) end
  if type(done) == "table" then return done end
elseif deed == "free" then
  redis.call("DEL", KEYS[1], KEYS[2])
elseif deed == "announce" then
  redis.call("HSET", KEYS[2], PENDING, mine .. "," .. text(now))
elseif deed == "withdraw" then
  redis.call("HDEL", KEYS[2], PENDING)
end
return { mark, outcome, type(detail) == "number" and text(detail) or detail or "" }
]]

-- The whole of a resource: the time; the text of the first key, the fields of the second.
local LOOK = NOW .. [[
return { ARGV[1], text(now), redis.call("GET", KEYS[1]) or "", redis.call("HGETALL", KEYS[2]) }
]]

local SCAN = [[
local found = redis.call("SCAN", ARGV[2], "MATCH", "*mutexes/*", "COUNT", 1000)
return { ARGV[1], found[1], found[2] }
]]

-- The time, and the name under which the server keeps STEP: its SHA-1.
local TIME = NOW .. "return { ARGV[1], text(now), redis.sha1hex([==[" .. STEP .. "]==]) }"

local MEMORY = [[ return { ARGV[1], redis.call("INFO", "memory") } ]]

local KEY, DOORMAN = "mutexes/%s,%s", "{mutexes/%s,%s}.doorman"

local function keys(resource)
  return KEY:format(resource.type, resource.id), DOORMAN:format(resource.type, resource.id)
end

-- Two kinds of failures: the server has answered with an error, and has changed nothing; or no answer came.
local function refused(message) return nil, "refused: Redis: " .. message, "refused" end

local function silent(message) return nil, "in_doubt: Redis: " .. message, "in_doubt" end

-- lua-resty-redis returns false, message for the first kind, and nil, message for the second. redis-lua raises errors.
local function call(one, command, ...)
  if type(one[command]) ~= "function" then error("redis: the client must have a method " .. command, 0) end
  local fine, reply, message = pcall(one[command], one, ...)
  if fine and type(reply) == "table" then return reply end
  if fine and reply == false then return refused(tostring(message)) end
  if fine then return silent(tostring(message or "an unexpected reply")) end
  local words = tostring(reply):match "redis error: (.*)"
  if words then return refused(words) end
  return silent(tostring(reply))
end

local names = {} -- of scripts that servers keep

-- The text is sent where the server does not have it, or does not let it be called by its name.
local function run(one, script, ...)
  if names[script] and one.evalsha then
    local reply, message, code = call(one, "evalsha", names[script], ...)
    if code ~= "refused" then return reply, message, code end
  end
  return call(one, "eval", script, ...)
end

-- No two questions over one connection have the same mark.
local asked = 0

-- Returns the reply of a script, with the mark in front, or nil, message, code. `resource`: whose keys the script gets,
-- or nil.
local function ask(one, script, resource, ...)
  asked = asked + 1
  local mark = ("%x"):format(asked)
  local reply, message, code
  if resource then
    local key, door = keys(resource)
    reply, message, code = run(one, script, 2, key, door, mark, ...)
  else
    reply, message, code = run(one, script, 0, mark, ...)
  end
  if reply and reply[1] ~= mark then return silent "the reply is that of an earlier question" end
  return reply, message, code
end

local function text(milliseconds) return ("%.0f"):format(milliseconds) end

local function step(one, time, resource, verb, mine, since)
  local reply, message, code = ask(one, STEP, resource, verb, mine, text(late.expiry(time)),
    since and text(since) or "")
  if not reply then return nil, message, code end
  return reply[2], reply[2] == "busy" and reply[3] or tonumber(reply[3])
end

-- Answers of a server that is none for locks at the moment: a master that has become a replica keeps its connections.
local function is_elsewhere(message)
  if message:find("max number of clients", 1, true) then return true end
  for _, word in ipairs{ "READONLY", "LOADING", "MASTERDOWN", "BUSY" } do
    -- Redis 5 and 6 put words of their own before an error in a script.
    if message:find("%f[A-Z]" .. word .. " ") then return true end
  end
  return false
end

-- A client of such a server is given up, if the function can be asked for another.
local function answered(self, result, message, code)
  if code ~= "refused" or not self:renews() or not is_elsewhere(message) then return result, message, code end
  return nil, (message:gsub("^refused", "unreachable")), "unreachable"
end

local function use(self, fn, ...)
  return self:use(function(...) return answered(self, fn(...)) end, ...)
end

function redis:step(...) return use(self, step, ...) end

-- The operator --------------------------------------------------------------------------------------------------------

local function look(one, resource)
  local reply, message, code = ask(one, LOOK, resource)
  if not reply then return nil, message, code end
  local holder, at = reply[3]:match "^([^,]+),(%d+)$"
  local row, readers = { ticket = holder or "readers", acquired_at = tonumber(at) }, {}
  for i = 1, #reply[4], 2 do
    local field, value = reply[4][i], reply[4][i + 1]
    if field == " pending" then
      row.pending, row.pending_at = value:match "^([^,]+),(%d+)$"
      row.pending_at = tonumber(row.pending_at)
    elseif holder then
      table.insert(readers, field .. "," .. value)
    end
  end
  row.readers, row.is_foreign = table.concat(readers, " "), holder == "readers" and not readers[1]
  return { type = resource.type, id = resource.id, row = row, now = tonumber(reply[2]) }
end

local PATTERNS = { "^mutexes/([^,{}]+),([^,{}]+)$", "^{mutexes/([^,{}]+),([^,{}]+)}%.doorman$" }

-- The resources whose keys there are, as a set "type,id" -> resource. Redis looks at all its keys once.
local function scan(one)
  local cursor, found = "0", {}
  repeat
    local reply, message, code = ask(one, SCAN, nil, cursor)
    if not reply then return nil, message, code end
    cursor = reply[2]
    for _, key in ipairs(reply[3]) do
      for _, pattern in ipairs(PATTERNS) do
        local type, id = key:match(pattern)
        if type then found[type .. "," .. id] = { type = type, id = id } end
      end
    end
  until cursor == "0"
  return found
end

-- A key of another type is no lock: the log is told, and the list goes on. Every other refusal is that of the list.
local function list(one, _, log)
  local all, found, problem, why = {}, scan(one)
  if not found then return nil, problem, why end
  for _, resource in pairs(found) do
    local seen, message, code = look(one, resource)
    local is_foreign = code == "refused" and message:find("WRONGTYPE", 1, true)
    if not seen and not is_foreign then return nil, message, code end
    if not seen and log then log("warning", ("%s (of %s)"):format(message, (keys(resource)))) end
    table.insert(all, seen)
  end
  return all
end

function redis:list() return use(self, list, self._log) end

-- A policy that evicts keys without a time to live may evict locks. The volatile ones evict only keys that have one.
local function setup(one)
  local reply, message, code = ask(one, MEMORY)
  if not reply then return nil, message, code end
  local policy = reply[2]:match "maxmemory_policy:([%w-]+)"
  if policy and policy:find "^allkeys" then
    local words = "unsafe: maxmemory-policy is %s: Redis may evict locks; set noeviction, or a volatile policy"
    return nil, words:format(policy), "unsafe"
  end
  return true
end

function redis:setup() return use(self, setup) end

--- A store over a client of Redis, or a function that makes one: an object with a method eval(script, count, keys and
-- arguments...), and evalsha() at best, as those of lua-resty-redis and redis-lua.
function redis.new(given, known)
  local function quit(one)
    if one.close then one:close() elseif one.quit then one:quit() end
  end
  local self
  local function tell(one)
    local reply, message, code = answered(self, ask(one, TIME))
    if not reply then return nil, message, code end
    names[STEP] = reply[3]
    return tonumber(reply[2])
  end
  self = setmetatable(client.new(given, quit, tell, known.clock), redis)
  self._log = known.log
  return self
end

return redis
