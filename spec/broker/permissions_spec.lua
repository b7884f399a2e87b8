-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The permissions that the guide names are sufficient, and no larger than necessary.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local scene = require "spec.broker.facts.scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_describe = broker.operated_it(describe, pending)

after_each(stage.clear)
teardown(stage.check)

-- A connection as a new user; returns it and the user.
local function connect_as(configure, write, read, options)
  local user = client.unique "user"
  local url = broker.suite:add_user(user, configure, write, read)
  stage.undo(function() broker.suite:delete_user(user) end)
  return stage.connect(url, options), user
end

operated_describe("the guide's permissions", function()
  local name, notes

  local options = { log = function(_, note) table.insert(notes, note) end }

  local function locker()
    local configure = "^" .. name .. "-[0-9]+-B(-bolt)?$"
    local read = "^" .. name .. "-([0-9]+-(A|B(-bolt)?)|bell)$"
    return (connect_as(configure, "^amq\\.default$", read, options))
  end

  local function administrator()
    local configure = "^" .. name .. "-(admin(-bolt)?|bell|scratch-[0-9a-f]+|[0-9]+-A)$"
    return (connect_as(configure, "^amq\\.default$", "^" .. name .. "-admin(-bolt)?$", options))
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
    assert.equal(4, admin:resize(4))
    assert.equal(5, admin:add(1))
    assert.equal(3, admin:remove(2, { wait = 1, overshoot = 2 }))
    assert.equal(3, admin:repair())
    assert.equal(3, #assert(admin:status()))
    assert.is_true(admin:wait_released { 1, 2 })
    stage.fails("not_held", admin:revoke(2))
    local lock = stage.take(stage.connect():semaphore(name))
    assert.is_true(admin:revoke(1))
    until_true(function() return lock:revoked() end)
    assert.equal(1, admin:remove(2, { revoke = true, wait = 20 }))
    assert.is_true(lock:release())
    assert_all_bolted()
    stage.fails("refused", conn:semaphore(name):try_acquire())
    assert.is_true(admin:destroy())
  end)

  it("let a user lock, however it asks, and not administer", function()
    assert.equal(2, administrator():admin(name):resize(2))
    local conn = locker()
    for _, probe in ipairs { "auto", "publish", "passive" } do
      local lock = assert(conn:semaphore(name, { probe = probe }):acquire { timeout = 5 })
      assert.is_true(stage.held(name, 1))
      assert.is_true(lock:verify())
      assert.is_true(lock:release())
      assert.is_true(stage.free(name, 1))
    end
    assert_all_bolted()
    stage.fails("refused", conn:admin(name):resize(3))
  end)
end)

operated_describe("the guide's permissions to ask for a lock back", function()
  it("are enough for a mutex", function()
    local name = stage.mutex()
    local configure = ("^%s-(scratch-[0-9a-f]+|mutex-bolt)$"):format(name)
    local conn, own = connect_as(configure, "^amq\\.default$", "^$"), stage.connect()
    stage.fails("not_held", conn:mutex(name):revoke())
    local lock = stage.take(own:mutex(name))
    assert.is_true(conn:mutex(name):revoke())
    until_true(function() return lock:revoked() end)
    assert.is_true(lock:release())
    assert.is_true(conn:mutex(name):revoke { wait = 20 })
    stage.fails("refused", connect_as(configure, "^$", "^$"):mutex(name):revoke())
  end)

  it("are enough for readers and a writer", function()
    local name = gate.name()
    local configure = ("^%s-(scratch-[0-9a-f]+|writer-bolt)$"):format(name)
    local conn, own = connect_as(configure, "^amq\\.(default|direct)$", "^$"), stage.connect():rwlock(name)
    for method, revoke in pairs { read = "revoke_readers", write = "revoke_writer" } do
      local rwlock = conn:rwlock(name)
      stage.fails("not_held", rwlock[revoke](rwlock))
      local lock = assert(own[method](own))
      assert.is_true(rwlock[revoke](rwlock))
      until_true(function() return lock:revoked() end)
      assert.is_true(lock:release())
      assert.is_true(rwlock[revoke](rwlock, { wait = 20 }))
    end
    local mute = connect_as(configure, "^amq\\.default$", "^$"):rwlock(name)
    stage.fails("refused", mute:revoke_readers())
  end)
end)

-- Readers of all locks of a virtual host are bound to one exchange, and the permission to read it is for all keys. The
-- guide says so, and that locks which must not disturb each other belong in separate virtual hosts.
operated_describe("a user who may only read one lock", function()
  local theirs, others

  -- The guide's permissions to read `theirs`, in this virtual host; gives the user.
  local function reader(vhost)
    local user = theirs .. "-reader"
    stage.undo(function() broker.suite:delete_user(user) end)
    broker.suite:add_user(user,
      ("^%s-(reader-[0-9a-f]+|writer(-bolt)?|rwbell)$"):format(theirs),
      ("^(amq\\.default|%s-reader-[0-9a-f]+)$"):format(theirs),
      ("^(amq\\.direct|%s-(reader-[0-9a-f]+|rwbell))$"):format(theirs), vhost)
    return user
  end

  local function writer(url) return stage.connect(url):rwlock(others) end

  -- Binds a queue of its own with the other lock's key; gives the connection.
  local function bind(address, user)
    local own = stage.client(address, { user = user, password = "password" })
    local channel, queue = own:channel(), theirs .. "-reader-0123456789abcdef"
    assert(channel:call(scene.holder(queue)))
    assert(channel:call { method = "queue.bind", queue = queue, exchange = "amq.direct",
      routing_key = others .. "-readers" })
    return own
  end

  before_each(function() theirs, others = client.unique "catalogue", client.unique "ledger" end)

  it("keeps the writers of another one out, in the same virtual host", function()
    local rwlock, user = writer(), reader()
    assert(rwlock:try_write()):release()
    local own = bind(nil, user)
    assert.equal("busy", select(3, rwlock:try_write()))
    assert.equal("timeout", select(3, rwlock:write { timeout = 0.5 }))
    own:close()
    assert(rwlock:write { timeout = 10 }):release()
  end)

  it("disturbs nobody in another virtual host", function()
    local vhost = client.unique "vhost"
    stage.undo(function() broker.suite:delete_vhost(vhost) end)
    local url = broker.suite:add_vhost(vhost, { connections = 50 })
    local rwlock, user = writer(), reader(vhost)
    local elsewhere = os.getenv "AMQP_URL":gsub("//[^@]*@", "//" .. user .. ":password@")
    stage.fails("vhost", amqplocks.connect(elsewhere))
    local own = bind(url, user)
    assert(rwlock:try_write()):release()
    own:close()
  end)
end)
