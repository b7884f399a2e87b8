-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Witnesses, each in a process of its own. They use the specs' own client and no code of the library. They check from
-- outside whether the queue of a lock exists, and now and then take a slot or a mutex themselves, as other software
-- may. They record (see journal.lua):
--
--     saw pool slot from what      "absent" or "present": between `from` and the line's time. The witness made a
--                                  metadata write in between, so no node's view can have been older than `from`
--     ask, got, held, let, free    as clients do. "held" is recorded when the broker has confirmed it afterwards
local client = require "spec.support.client"
local journal = require "tools.prove.journal"
local pools = require "tools.prove.pools"
local socket = require "socket"

local witness = {}

local B = { exclusive = true, auto_delete = true, arguments = {
  ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head",
} }

local function look(self, pool, slot)
  local from = journal.now()
  local scratch = self.name .. ".scratch"
  assert(self.link:declare(scratch, { exclusive = true }))
  assert(self.link:delete(scratch))
  local what = self.link:exists(pools.holder(pool, slot)) and "present" or "absent"
  local kind = pool.kind == "rwlock" and "write" or nil
  self.journal:note("saw", { pool = pool.name, slot = slot, kind = kind, from = from, what = what })
end

-- Whether the queue exists and is ours: the owner's passive declare succeeds.
local function is_ours(self, queue)
  local asked = self.link:channel()
  local answer, reason = asked:call{ method = "queue.declare", queue = queue, passive = true }
  if answer then asked:close() end
  if reason and reason.connection then error(reason.text, 0) end
  return answer ~= nil
end

local function take(self, pool, slot)
  local queue, op = pools.holder(pool, slot), self.journal:number()
  self.journal:note("ask", { op = op, pool = pool.name, way = "declare", within = 6 })
  local declared, reason = self.link:declare(queue, B)
  if not declared then return self.journal:note("none", { op = op, code = reason.code }) end
  self.journal:note("got", { op = op, slot = slot, kind = slot and "slot" or "mutex", ticket = "none" })
  local from, deadline = journal.now(), journal.now() + math.random() ^ 2 * 0.1
  while journal.now() < deadline and is_ours(self, queue) do
    self.journal:note("held", { op = op, from = from })
    socket.sleep(0.002)
    from = journal.now()
  end
  self.journal:note("let", { op = op, how = "delete", within = 6 })
  assert(self.link:delete(queue))
  self.journal:note("free", { op = op })
end

local function turn(self)
  if not self.link then self.link = assert(client.connect(self.url)) end
  local pool = self.pools[math.random(#self.pools)]
  local slot = pools.is_numbered(pool) and math.random(pool.least) or nil
  if pool.kind ~= "rwlock" and math.random() < 0.2 then take(self, pool, slot) else look(self, pool, slot) end
end

local function visible(list)
  local some = {}
  for _, pool in ipairs(pools.decode(list)) do
    if pools.holder(pool, 1) then table.insert(some, pool) end
  end
  return some
end

--- Runs until the spec sends something, with a pause of at most so many seconds after each check.
function witness.run(spec, cpath, directory, lane, name, url, list, seed, pause)
  journal.use(cpath)
  math.randomseed(seed)
  local self = { lane = lane, name = name, url = url, pools = visible(list), journal = journal.open(directory, lane) }
  while not socket.select({ spec }, nil, 0)[spec] and #self.pools > 0 do
    local fine, problem = pcall(turn, self)
    if not fine then -- the broker went away: locks are lost
      self.journal:note("trouble", { message = problem })
      if self.link then self.link:abort() end
      self.link = nil
      socket.sleep(0.1)
    end
    socket.sleep(math.random() ^ 2 * pause)
  end
  if self.link then self.link:close() end
  self.journal:note "end"
  return true
end

return witness
