-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local amqplocks = require "amqplocks"
local stage = require "spec.support.stage"

stage.tidy()

for _, probe in ipairs{ "publish", "passive", "auto" } do
  it("probing by " .. probe .. " finds the free slots, the end of them, no semaphore, and a slot removed", function()
    local name, nothing = stage.semaphore(20), stage.name()
    local conn, holder = stage.connect(), stage.client()
    for i = 1, 18 do assert(holder:declare(stage.holder(name, i), { exclusive = true })) end
    local sem = conn:semaphore(name, { probe = probe })
    assert.equal(19, stage.take(sem).slot)
    local lock = stage.take(sem, { timeout = 60 })
    assert.equal(20, lock.slot)
    assert.is_true(stage.held(name, 19) and stage.held(name, 20))
    stage.fails("busy", sem:try_acquire())
    stage.fails("timeout", sem:acquire{ timeout = 0.2 }) -- and no deadlock: others may release a slot
    stage.fails("not_found", conn:semaphore(nothing, { probe = probe }):try_acquire())
    assert.is_true(lock:verify())
    stage.remove(name, 20)
    stage.fails("removed", lock:verify())
    assert.is_true(stage.held(name, 20))
    stage.add(name, 20, 20)
    stage.fails("busy", stage.connect():semaphore(name):try_acquire())
  end)
end

describe("a lock that goes out of scope", function()
  local load_text = loadstring or load -- luacheck: ignore 113
  local close_it = load_text("local x <close> = nil") and it or pending

  close_it("at the end of a <close> block, or whose connection does, is released, also by an error", function()
    local name = stage.semaphore(2)
    local block = assert(load_text([[
      local connect, name, inside = ...
      local conn <close> = assert(connect())
      local sem = conn:semaphore(name)
      local kept = assert(sem:acquire())
      do
        local lock <close> = assert(sem:acquire{ timeout = 60 })
        inside(lock)
      end
      inside(kept)
    ]]))
    local slots = {}
    block(amqplocks.connect, name, function(lock)
      assert.is_true(lock:held() and stage.held(name, lock.slot))
      if slots[1] then assert.is_true(stage.free(name, slots[1])) end
      table.insert(slots, lock.slot)
    end)
    assert.same({ 2, 1 }, slots)
    local fine, problem = pcall(block, amqplocks.connect, name, function() error({ "unchanged" }) end)
    assert.is_false(fine)
    assert.same({ "unchanged" }, problem)
    for slot = 1, 2 do assert.is_true(stage.free(name, slot)) end
  end)

  it("is released when it is collected, also with its connection, and not while the lock is still known", function()
    local name = stage.semaphore(3)
    local sem = stage.connect():semaphore(name)
    local kept = assert(assert(amqplocks.connect()):semaphore(name):try_acquire())
    do
      local conn = assert(amqplocks.connect())
      conn.one = assert(conn:semaphore(name):try_acquire())
    end
    assert(sem:try_acquire())
    for _ = 1, 3 do collectgarbage() end
    stage.until_free(name, 2)
    stage.until_free(name, 3)
    assert.matches("open", tostring(sem._connection))
    assert.is_true(kept:verify() and stage.held(name, 1))
    assert(kept:release())
    assert.is_true(stage.free(name, 1))
  end)
end)

it("every object has a name of its kind, and a text", function()
  local name = stage.semaphore(1)
  local conn = stage.connect(nil, { name = "the spec" })
  local sem = conn:semaphore(name)
  for kind, object in pairs{ connection = conn, semaphore = sem, lock = stage.take(sem), admin = conn:admin(name) } do
    assert.equal("amqplocks." .. kind, getmetatable(object).__name)
    assert.matches("^amqplocks%." .. kind .. " %(", tostring(object))
  end
  assert.equal("amqplocks.connection (the spec, open)", tostring(conn))
  assert.equal(('amqplocks.semaphore ("%s")'):format(name), tostring(sem))
  conn:close()
  assert.equal("amqplocks.connection (the spec, closed)", tostring(conn))
  assert.matches("^amqplocks %d+%.%d+%.%d+$", amqplocks._VERSION)
end)
