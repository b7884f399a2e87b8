-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The locks for which the processes of `make prove-cluster` compete: one of each kind that only one process can hold,
-- and the two sides of a readers–writer lock.
local kinds = {}

-- The type of its queues, if an administrator creates them; whether only one process can hold it with Khepri; and what
-- other processes want, if not the same.
local ALL = {
  classic = { queue = "classic", exclusive = true },
  quorum = { queue = "quorum", exclusive = true },
  mutex = { exclusive = true },
  fenced = { exclusive = true }, -- a mutex with fencing tokens
  write = { exclusive = true, others = { "read", "write", "read" } },
  read = { exclusive = true, others = { "write", "write", "write" } },
  token = { queue = "classic", is_token = true },
  ["token-quorum"] = { queue = "quorum", is_token = true },
}

kinds.names = { "classic", "quorum", "mutex", "fenced", "write", "read", "token", "token-quorum" }

kinds.all = ALL

--- The kinds named by KINDS in the environment, or all. A kind may be named more than once.
function kinds.wanted()
  local list = {}
  for kind in (os.getenv "KINDS" or ""):gmatch "[%w-]+" do table.insert(list, kind) end
  return #list > 0 and list or kinds.names
end

function kinds.is_exclusive(kind) return ALL[kind].exclusive == true end

--- The kind that the rival on node i wants.
function kinds.rival(kind, i) return ALL[kind].others and ALL[kind].others[i] or kind end

--- Creates what an administrator must create.
function kinds.make(conn, kind, name)
  local about = ALL[kind]
  if about.is_token then return assert(conn:token_semaphore(name, { queue_type = about.queue }):resize(1)) end
  if about.queue then return assert(conn:admin(name, { queue_type = about.queue }):resize(1)) end
end

--- Deletes it.
function kinds.unmake(conn, kind, name)
  local about = ALL[kind]
  if about.is_token then return assert(conn:token_semaphore(name, { queue_type = about.queue }):destroy()) end
  if about.queue then return assert(conn:admin(name, { queue_type = about.queue }):destroy()) end
end

--- Returns a function of timeout and poll that acquires it; a timeout of 0 tries once.
function kinds.lock(conn, kind, name)
  local about = ALL[kind]
  if kind == "read" or kind == "write" then
    local rwlock = conn:rwlock(name)
    return function(timeout, poll) return rwlock[kind](rwlock, { timeout = timeout, poll = poll }) end
  end
  local lock
  if kind == "mutex" or kind == "fenced" then
    lock = conn:mutex(name, { fenced = kind == "fenced" })
  elseif about.is_token then
    lock = conn:token_semaphore(name, { queue_type = about.queue })
  else
    lock = conn:semaphore(name)
  end
  return function(timeout, poll) return lock:acquire{ timeout = timeout, poll = poll } end
end

return kinds
