-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- Lists and breaks locks from a shell, after a crash. LOCKS is a Lua file that returns the locks object which the
-- programs use, such as: return require("dblocks").redis(function() return require("redis").connect("127.0.0.1") end)
--   operator.lua LOCKS list [SECONDS]            what is held, or only what is older than that
--   operator.lua LOCKS break TYPE ID TICKET      ends what is held under that ticket, and nothing else
local file, verb = arg[1], arg[2]

local function fail(message)
  io.stderr:write(message, "\n")
  os.exit(1)
end

local function list(locks, older_than)
  local found, message = locks:list { older_than = tonumber(older_than) }
  if not found then fail(message) end
  for _, entry in ipairs(found) do
    local since = os.date("%Y-%m-%d %H:%M:%S", math.floor(entry.acquired_at))
    print(("%s\t%s\t%s\t%s\t%s\t%.0f s"):format(entry.type, entry.id, entry.kind, entry.ticket, since, entry.age))
  end
end

local function break_lock(locks, type, id, ticket)
  local broken, message = locks:break_lock(type, id, ticket)
  if not broken then fail(message) end
end

local verbs = { list = list, ["break"] = break_lock }
if not file or not verbs[verb] then fail "operator.lua LOCKS list [SECONDS] | break TYPE ID TICKET" end
verbs[verb](dofile(file), arg[3], arg[4], arg[5])
