-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The locks for which the processes of `make prove-cluster` compete: one of each kind that only one process can hold,
-- and the two sides of a readers–writer lock.
local client = require "spec.support.client"
local cluster = require "tools.prove.three_nodes"
local until_true = require "spec.support.until"

local kinds = {}

-- The type of its queues, if an administrator creates them; `exclusive`: only one process can hold it with Khepri;
-- `connected`: only one process can hold it, with Mnesia, too, while the nodes are connected; and what other processes
-- want, if not the same.
local ALL = {
  classic = { queue = "classic", exclusive = true },
  quorum = { queue = "quorum", exclusive = true },
  mutex = { exclusive = true },
  fenced = { exclusive = true }, -- a mutex with fencing tokens
  fast_mutex = { connected = true, queue_name = "%s-fastmutex" },
  quorum_mutex = { exclusive = true, queue_name = "%s-fastmutex", options = { queue_type = "quorum" } }, -- from 4.3 on
  write = { exclusive = true, others = { "read", "write", "read" } },
  read = { exclusive = true, others = { "write", "write", "write" } },
  token = { queue = "classic", is_token = true },
  ["token-quorum"] = { queue = "quorum", is_token = true },
}

kinds.names = { "classic", "quorum", "mutex", "fenced", "fast_mutex", "write", "read", "token", "token-quorum" }
if cluster.version and cluster.is_since(4, 3) then table.insert(kinds.names, "quorum_mutex") end

kinds.all = ALL

--- The kinds named by KINDS in the environment, or all. A kind may be named more than once.
function kinds.wanted()
  local list = {}
  for kind in (os.getenv "KINDS" or ""):gmatch "[%w_-]+" do table.insert(list, kind) end
  return #list > 0 and list or kinds.names
end

--- The kinds of a list that are wanted.
function kinds.wanted_of(list)
  local is_wanted, some = {}, {}
  for _, kind in ipairs(kinds.wanted()) do is_wanted[kind] = true end
  for _, kind in ipairs(list) do
    if is_wanted[kind] then table.insert(some, kind) end
  end
  return some
end

--- Whether the documentation promises that only one process holds it at a time. `are_parted`: nodes are, or were, cut
-- off or frozen.
function kinds.is_exclusive(kind, are_parted)
  local about = ALL[kind]
  return about.connected and not are_parted or about.exclusive and cluster.has_khepri() or false
end

--- A lock that each partition must leave exclusive, or one that is the bare recipe: a message that is not acknowledged.
function kinds.is_judged_twice(kind) return kind == "quorum_mutex" or kinds.is_permit(kind) end

function kinds.is_permit(kind) return ALL[kind].is_token == true end

--- The kind that the rival on node i wants.
function kinds.rival(kind, i) return ALL[kind].others and ALL[kind].others[i] or kind end

--- Creates what an administrator must create, and the queue of a fast mutex, which stays on the node of its maker.
function kinds.make(conn, kind, name)
  local about = ALL[kind]
  if about.queue_name then return assert(assert(conn:fast_mutex(name, about.options):try_acquire()):release()) end
  if about.is_token then return assert(conn:token_semaphore(name, { queue_type = about.queue }):resize(1)) end
  if about.queue then return assert(conn:admin(name, { queue_type = about.queue }):resize(1)) end
end

--- Deletes it.
function kinds.unmake(conn, kind, name)
  local about = ALL[kind]
  if about.is_token then return assert(conn:token_semaphore(name, { queue_type = about.queue }):destroy()) end
  if about.queue then return assert(conn:admin(name, { queue_type = about.queue }):destroy()) end
end

-- Tokens that the queue of a fast mutex may have at the end. A waiter rings again after `poll` while the holder has the
-- token in hand, so a second one is usual. The queue refuses any while one lies ready, so they do not pile up. A quorum
-- queue tells its publishers that it is full; each may have published one before.
local MOST_TOKENS = { fast_mutex = 3, quorum_mutex = 12 }

--- What is wrong with the queue of a fast mutex that nobody holds and nobody waits for, as text: it has no token or too
-- many, or a consumer. nil: nothing is wrong, or it is of another kind. Deletes that queue.
function kinds.leftovers(url, kind, name)
  local queue = ALL[kind].queue_name
  if not queue then return nil end
  queue = queue:format(name)
  local link = assert(client.connect(url))
  local words
  pcall(until_true, function() -- a release is not confirmed
    local answer, reason = link:channel():call{ method = "queue.declare", queue = queue, passive = true }
    if not answer then
      words = reason.text
      return false
    end
    local tokens, consumers = answer.message_count, answer.consumer_count
    local is_fine = tokens >= 1 and tokens <= MOST_TOKENS[kind] and consumers == 0
    words = not is_fine and ("%s has %d messages and %d consumers"):format(queue, tokens, consumers) or nil
    return is_fine
  end)
  link:delete(queue)
  link:close()
  return words
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
  elseif about.queue_name then
    lock = conn:fast_mutex(name, about.options)
  elseif about.is_token then
    lock = conn:token_semaphore(name, { queue_type = about.queue })
  else
    lock = conn:semaphore(name)
  end
  return function(timeout, poll) return lock:acquire{ timeout = timeout, poll = poll } end
end

return kinds
