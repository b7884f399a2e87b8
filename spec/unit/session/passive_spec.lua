-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Probing by passive declares on the holder: on demand, under an alarm, or when publishing is denied.

local Peer = require "spec.support.peer"

local ALARM = { channel = 0, method = "connection.blocked", reason = "low on memory" }
local NO_ALARM = { channel = 0, method = "connection.unblocked" }
local ABSENT = { 404, "NOT_FOUND - no queue 'q' in vhost '/'" }

describe("a passive probe", function ()
  local peer

  local function open(settings) peer = Peer.open(settings) end

  before_each(function () open() end)

  -- Takes the passive declares written. Returns a list of { channel =, queue = }.
  local function asked()
    local list = {}
    while peer.holder:next() ~= "nothing" do
      if peer.holder:next() == "channel.open" then peer.holder:opened() end
      if not peer.holder.frames[1].passive then break end
      table.insert(list, peer.holder:expect("queue.declare", { no_wait = false }))
    end
    return list
  end

  -- Answers everything asked until nothing is. `states`: queue = true or { code, text }; absent otherwise.
  local function serve(states)
    local names, looks = {}, asked()
    while #looks > 0 do
      local look = table.remove(looks, 1)
      table.insert(names, look.queue)
      local state = states[look.queue] or ABSENT
      if state == true then
        peer.holder:declared(look.channel, look.queue)
      else
        peer.holder:refuse(look.channel, state[1], state[2], "queue.declare")
      end
      for _, more in ipairs(asked()) do table.insert(looks, more) end
    end
    return names
  end

  local function passively(timeout) return peer:semaphore("images", { probe = "passive" }):acquire(timeout) end

  it("of B is answered with declared, 405, 404 in other words (held, never free), 403, or another code", function ()
    for code, with in pairs{ squatted = true, busy = { 405, "RESOURCE_LOCKED - cannot obtain exclusive access" },
      ["busy "] = { 404, "NOT_FOUND - home node of queue is down" },
      refused = { 403, "ACCESS_REFUSED - configure access refused" }, unreachable = { 541, "INTERNAL_ERROR" } } do
      open()
      local op = passively(0)
      serve({ ["images-1-A"] = true, ["images-1-B"] = with })
      peer:failed(op, code:match"%a+")
    end
  end)

  it("has no channel left: limit", function ()
    peer = Peer.open(nil, { channel_max = 1 })
    peer:acquire("other")
    peer:failed(passively(0), "limit", "no channel is left")
  end)

  describe("in place of publishing", function ()
    it("takes over, when an alarm begins, what was not answered yet", function ()
      local op = peer:semaphore("images"):acquire(0)
      local probes = peer.prober:probes()
      peer.prober:answer({ probes[1], probes[2], probes[3] }, { "images-1-A", "images-1-B" })
      peer.prober:send(ALARM)
      local names = serve({})
      assert.equal("images-2-B", names[1])
      assert.equal("images-1-B", names[30])  -- whether it is a lock
      assert.equal(30, #names)
      peer:failed(op, "busy")
      peer.prober:answer({ (table.unpack or unpack)(probes, 4) }, { "images-2-A" })  -- late, and not looked at any more
      peer.holder:ignore()
      assert.equal("open", peer.prober:state())
    end)

    it("is used from the start during an alarm, and not after it", function ()
      peer.prober:send(ALARM)
      local op = peer:semaphore("images"):acquire(0)
      peer.prober:silent()
      serve({})
      peer:failed(op, "not_found")
      peer.prober:send(NO_ALARM)
      op = peer:semaphore("images"):acquire(0)
      peer.prober:look{}
      peer:failed(op, "not_found")
    end)

    -- A search may not publish. Returns the operation.
    local function denied(options)
      local op = peer:semaphore("images", options):acquire(0)
      peer.prober:refuse(peer.prober:probes()[1].channel, 403, "ACCESS_REFUSED - write access", "basic.publish")
      return op
    end

    it("takes over when publishing is denied, and stays for the rest of the connection", function ()
      local op = denied()
      serve({})
      peer:failed(op, "not_found")
      op = peer:semaphore("images"):acquire(0)
      peer.prober:silent()
      serve({})
      peer:failed(op, "not_found")
    end)

    it("is not used by who publishes only: refused; blocked, also from the start", function ()
      peer:failed(denied{ probe = "publish" }, "refused", "write access")
      peer.holder:silent()
      open()
      local semaphore = peer:semaphore("images", { probe = "publish" })
      local op = semaphore:acquire(0)
      peer.prober:probes()
      peer.prober:send(ALARM)
      peer:failed(op, "blocked", "memory or disk alarm")
      peer:failed(semaphore:acquire(0), "blocked", "memory or disk alarm")
      peer:silent()
    end)
  end)
end)
