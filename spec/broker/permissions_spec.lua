-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The permissions that the guide names are sufficient, and no larger than necessary.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local scene = require "spec.broker.facts.scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_describe = broker.operated_it(describe, pending)

stage.tidy()

operated_describe("the guide's permissions", function()
  local name, notes

  local options = { log = function(_, note) table.insert(notes, note) end }

  local function user(configure, read)
    return (stage.connect_as(configure, "^amq\\.default$", read, options))
  end

  local function administrator()
    return user("^" .. name .. "-(admin(-bolt)?|bell|scratch-[0-9a-f]+|[0-9]+-A)$", "^" .. name .. "-admin(-bolt)?$")
  end

  before_each(function()
    name, notes = stage.name(), {}
    stage.undo(function() stage.connect():admin(name):destroy() end)
  end)

  local function assert_all_bolted()
    for _, note in ipairs(notes) do assert.is_nil(note:find("locks are held without the bolt", 1, true), note) end
  end

  it("let a user administer, and not lock", function()
    local conn = administrator()
    local admin = conn:admin(name)
    assert.same({ 4, 5, 3 }, { admin:resize(4), admin:add(1), admin:remove(2, { wait = 60, overshoot = 2 }) })
    assert.same({ 3, 3 }, { admin:repair(), #assert(admin:status()) })
    assert.is_true(admin:wait_released { 1, 2 })
    stage.fails("not_held", admin:revoke(2))
    local lock = stage.take(stage.connect():semaphore(name))
    assert.is_true(admin:revoke(1))
    until_true(function() return lock:revoked() end)
    assert.equal(1, admin:remove(2, { revoke = true, wait = 60 }))
    assert.is_true(lock:release())
    assert_all_bolted()
    stage.fails("refused", conn:semaphore(name):try_acquire())
    assert.is_true(admin:destroy())
  end)

  it("let a user lock, however it asks, and not administer", function()
    assert.equal(2, administrator():admin(name):resize(2))
    local conn = user("^" .. name .. "-[0-9]+-B(-bolt)?$", "^" .. name .. "-([0-9]+-(A|B(-bolt)?)|bell)$")
    for _, probe in ipairs { "auto", "publish", "passive" } do
      local lock = assert(conn:semaphore(name, { probe = probe }):acquire { timeout = 60 })
      assert.is_true(stage.held(name, 1))
      assert.is_true(lock:verify())
      assert.is_true(lock:release())
      assert.is_true(stage.free(name, 1))
    end
    assert_all_bolted()
    assert.matches("configure", stage.fails("refused", conn:admin(name):resize(3)))
  end)
end)

operated_describe("the guide's permissions to ask for a lock back", function()
  it("are enough", function()
    local name = gate.name()
    local configure = ("^%s-(scratch-[0-9a-f]+|(mutex|writer)-bolt)$"):format(name)
    local conn, own = stage.connect_as(configure, "^amq\\.(default|direct)$", "^$"), stage.connect()
    local lockable, mute = own:rwlock(name), stage.connect_as(configure, "^$", "^$")
    for method, case in pairs {
      acquire = { own:mutex(name), "mutex", "revoke" },
      read = { lockable, "rwlock", "revoke_readers" }, write = { lockable, "rwlock", "revoke_writer" },
    } do
      local asking, revoke = conn[case[2]](conn, name), case[3]
      stage.fails("not_held", asking[revoke](asking))
      local lock = assert(case[1][method](case[1]))
      assert.is_true(asking[revoke](asking))
      until_true(function() return lock:revoked() end)
      if method == "acquire" then
        assert.matches("not ask", stage.fails("refused", mute:mutex(name):acquire{ revoke = true }), 1, true)
      end
      assert.is_true(lock:release())
      assert.is_true(asking[revoke](asking, { wait = 60 }))
      asking = mute[case[2]](mute, name)
      stage.fails("refused", asking[revoke](asking))
    end
  end)
end)

-- Readers of all locks of a virtual host are bound to one exchange, and the permission to read it is for all keys. The
-- guide says so, and that locks which must not disturb each other belong in separate virtual hosts.
operated_describe("a user who may only read one lock", function()
  it("keeps the writers of another one out, in the same virtual host, and not in another", function()
    local theirs, others = client.unique "catalogue", client.unique "ledger"
    local reads = stage.client((stage.user(("^%s-(reader-[0-9a-f]+|writer(-bolt)?|rwbell)$"):format(theirs),
      ("^(amq\\.default|%s-reader-[0-9a-f]+)$"):format(theirs),
      ("^(amq\\.direct|%s-(reader-[0-9a-f]+|rwbell))$"):format(theirs))))
    local rwlock = stage.connect():rwlock(others)
    assert(rwlock:try_write()):release()
    local channel, queue = reads:channel(), theirs .. "-reader-0123456789abcdef"
    assert(channel:call(scene.holder(queue)))
    assert(channel:call { method = "queue.bind", queue = queue, exchange = "amq.direct",
      routing_key = others .. "-readers" })
    assert.equal("busy", select(3, rwlock:try_write()))
    assert.equal("timeout", select(3, rwlock:write { timeout = 0.5 }))
    local elsewhere = stage.vhost{ connections = 50 }
    assert(stage.connect(elsewhere):rwlock(others):try_write()):release()
    reads:close()
    assert(rwlock:write { timeout = 60 }):release()
  end)
end)
