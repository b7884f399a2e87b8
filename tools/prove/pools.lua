-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The pools for which the processes of `make prove` compete: one of each kind of lock, with a unique name, and with
-- between `least` and `most` slots or permits, which administrators change.
local pools = {}

-- For each kind: the object that is locked, the object that is administered, and its ways to acquire, weighted by
-- repetition.
local KINDS = {
  classic = { least = 2, most = 4, ways = { "acquire" } },
  quorum = { least = 2, most = 3, ways = { "acquire" } },
  mutex = { least = 1, most = 1, ways = { "acquire" } },
  fenced = { least = 1, most = 1, ways = { "acquire" } }, -- a mutex with fencing tokens
  fast_mutex = { least = 1, most = 1, ways = { "acquire" } },
  rwlock = { least = 1, most = 1, ways = { "read", "read", "write" } },
  token = { least = 2, most = 4, ways = { "acquire" } },
  ["token-quorum"] = { least = 2, most = 3, ways = { "acquire" } },
}

pools.kinds = { "classic", "quorum", "mutex", "fenced", "fast_mutex", "rwlock", "token", "token-quorum" }

--- A pool of each of these kinds, or of all.
function pools.new(prefix, kinds)
  local list = {}
  for i, kind in ipairs(kinds or pools.kinds) do
    local about = KINDS[kind] or error("there is no kind of lock named " .. kind, 0)
    list[i] = { name = prefix .. "." .. kind, kind = kind, least = about.least, most = about.most }
  end
  return list
end

--- Pools as text, and back, to pass them to processes.
function pools.encode(list)
  local lines = {}
  for i, pool in ipairs(list) do lines[i] = ("%s %s %d %d"):format(pool.name, pool.kind, pool.least, pool.most) end
  return table.concat(lines, "\n")
end

function pools.decode(lines)
  local list = {}
  for name, kind, least, most in lines:gmatch "(%S+) (%S+) (%d+) (%d+)" do
    table.insert(list, { name = name, kind = kind, least = tonumber(least), most = tonumber(most) })
  end
  return list
end

function pools.ways(pool) return KINDS[pool.kind].ways end

function pools.is_token(pool) return pool.kind:sub(1, 5) == "token" end

function pools.is_fast(pool) return pool.kind == "fast_mutex" end

--- Whether its callers may choose how the library probes.
function pools.is_probed(pool) return not pools.is_token(pool) and not pools.is_fast(pool) end

--- Whether an administrator creates and resizes it.
function pools.is_administered(pool) return pool.most > 1 end

--- Whether its slots have numbers.
function pools.is_numbered(pool) return pool.kind == "classic" or pool.kind == "quorum" end

local function queue_type(pool) return pool.kind:match "quorum" or "classic" end

local function fenced(options)
  local more = { fenced = true }
  for name, value in pairs(options or {}) do more[name] = value end
  return more
end

--- The object that its callers lock, on a connection.
function pools.lock(conn, pool, options)
  if pools.is_token(pool) then return conn:token_semaphore(pool.name, { queue_type = queue_type(pool) }) end
  if pools.is_fast(pool) then return conn:fast_mutex(pool.name) end
  if pool.kind == "fenced" then return conn:mutex(pool.name, fenced(options)) end
  return conn[pools.is_numbered(pool) and "semaphore" or pool.kind](conn, pool.name, options)
end

--- The object that its administrators use.
function pools.admin(conn, pool)
  if pools.is_token(pool) then return pools.lock(conn, pool) end
  return conn:admin(pool.name, { queue_type = queue_type(pool) })
end

--- The queue that is held with a lock of it, if its name is known: for a slot, a mutex, a writer.
function pools.holder(pool, slot)
  if pools.is_numbered(pool) then return ("%s-%d-B"):format(pool.name, slot) end
  if pool.kind == "mutex" or pool.kind == "fenced" then return pool.name .. "-mutex" end
  if pool.kind == "rwlock" then return pool.name .. "-writer" end
end

--- The queue from which its fencing tokens are drawn; nil: it has none.
function pools.fence(pool) return pool.kind == "fenced" and pool.name .. "-mutexfence" or nil end

local BELLS = { mutex = "-mutexbell", fenced = "-mutexbell", rwlock = "-rwbell", fast_mutex = "-fastmutex" }

--- Its doorbell. The queue of a fast mutex is its own.
function pools.bell(pool)
  if pools.is_token(pool) then return nil end
  return pool.name .. (BELLS[pool.kind] or "-bell")
end

return pools
