-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Events and statistics of a connection, compared with what other clients see of its locks.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local kinds = require "spec.support.kinds"
local metrics = require "amqplocks.metrics"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- A connection with a listener, and the list of its events.
local function listened(options)
  local list = {}
  local conn = stage.connect(nil, options)
  local remove = conn:on_event(function(event) table.insert(list, event) end)
  return conn, list, remove
end

-- What was told, in order; `what` alone, or with these fields.
local function told(list, ...)
  local texts = {}
  for i, event in ipairs(list) do
    texts[i] = event.what
    for _, key in ipairs{ ... } do texts[i] = texts[i] .. " " .. tostring(event[key]) end
  end
  return texts
end

-- Those of `what`; without the events of connections if there is no such argument.
local function only(list, what)
  local some = {}
  for _, event in ipairs(list) do
    if event.what == what or not what and not event.link then table.insert(some, event) end
  end
  return some
end

stage.tidy()

describe("events", function()
  it("tell of each kind of lock that it was acquired and released, and metrics count the connections", function()
    local conn, list = listened()
    local before, expected, counts = os.time(), {}, metrics.new()
    counts.listen(conn)
    for kind, makes in pairs(kinds.all) do
      local lock = assert(makes.over(conn, makes.name()):acquire{ timeout = 60 })
      local up = counts.text():match 'amqplocks_connection_up{link="quorum"} (%d+)\n'
      if kind == "quorum_mutex" then assert.equal("1", up) end
      assert(lock:release())
      table.insert(expected, "acquired " .. (makes.kind or kind))
      table.insert(expected, "released " .. (makes.kind or kind))
    end
    assert.same(expected, told(only(list), "kind"))
    for _, event in ipairs(only(list)) do
      assert.is_true(stage.is_since(before, event.at) and #event.ticket == 16)
      assert.is_true((event.waited or event.held) >= 0)
    end
    assert.same({ #expected / 2, 0 }, { conn:stats().acquired, conn:stats().held })
  end)

  it("tell why an acquire has failed, and that it has waited", function()
    local conn, list = listened()
    local name = gate.name()
    gate.occupy("mutex", name)
    conn:mutex(name):try_acquire()
    conn:mutex(name):acquire{ timeout = 2 }
    pcall(function() conn:mutex(name):acquire{ on_wait = function() error "enough" end } end)
    assert.same({ "failed busy nil", "waiting nil nil", "failed timeout true", "waiting nil nil",
      "failed abandoned true" }, told(only(list), "code", "in_line"))
    assert.same({ "mutex", name }, { list[#list].kind, list[#list].name })
    assert.same({ busy = 1, timeout = 1, closed = 1 }, conn:stats().failed)
    assert.equal(0, conn:stats().waiting)
    assert.error_matches(function() conn:mutex(name):acquire{ bad = 1 } end, "unknown option")
    assert.equal(5, #only(list)) -- a programming error is none
  end)

  it("tell of each part of several locks", function()
    local conn, list = listened()
    local a, b, semaphore = gate.name(), gate.name(), stage.semaphore(2)
    assert(conn:all{ conn:mutex(a), conn:mutex(b) }:acquire()):release()
    assert(conn:semaphore(semaphore):acquire{ count = 2 }):release()
    assert.equal(4, #only(list, "acquired"))
    assert.equal(4, #only(list, "released"))
    assert.equal(8, #only(list))
    assert.equal(4, conn:stats().acquired)
    local mutex = conn:mutex(a, { reentrant = true })
    local first, second = assert(mutex:acquire()), assert(mutex:acquire())
    first:release()
    second:release()
    assert.equal(10, #only(list)) -- another entry is none
  end)

  it("tell the end of a lock once: of one that is collected, downgraded, or left to the connection", function()
    local conn, list = listened()
    local a, b, c = gate.name(), gate.name(), gate.name()
    conn:mutex(a):try_acquire()
    for _ = 1, 2 do collectgarbage() end
    gate.until_free("mutex", a)
    until_true(function()
      conn:mutex(c):with(function() end)
      for _, event in ipairs(only(list, "released")) do
        if event.name == a then return true end
      end
    end)
    local writer = assert(conn:rwlock(b):write())
    assert(writer:downgrade())
    writer:release()
    writer:release()
    local ends = only(list, "released")
    assert.same({ "write", b }, { ends[#ends].kind, ends[#ends].name })
    local kept = assert(conn:mutex(a):try_acquire())
    conn:close()
    assert.equal(kept.ticket, only(list, "released")[#only(list, "released")].ticket)
    assert.equal(#only(list, "acquired"), #only(list, "released"))
    assert.equal(#only(list, "up"), #only(list, "down"))
  end)

  operated_it("tell of losses once, with and without on_lost, and of connections", function()
    local label, name, lost = client.unique "told", gate.name(), 0
    local conn, list = listened{ name = label }
    local lock = assert(conn:mutex(name):try_acquire())
    broker.suite:close_connection(label .. " holder")
    stage.fails("lost", lock:verify())
    lock:release()
    assert.same({ "acquired", "lost" }, told(only(list)))
    conn:on_lost(function() lost = lost + 1 end)
    lock = assert(conn:mutex(name):acquire{ timeout = 60 })
    broker.suite:close_connection(label .. " holder")
    stage.fails("lost", lock:verify())
    stage.fails("lost", lock:release())
    assert.same({ "acquired", "lost", "acquired", "lost" }, told(only(list)))
    assert.equal(1, lost)
    assert(conn:mutex(name):acquire{ timeout = 60 }):release()
    local links = {}
    for _, event in ipairs(list) do
      if event.link == "holder" then table.insert(links, event.what) end
    end
    assert.same({ "up", "down", "up", "down", "up" }, links)
    assert.same({ 2, 3 }, { conn:stats().lost, conn:stats().opened.holder })
  end)

  operated_it("tell that a lock is asked for, and of an alarm", function()
    local conn, list = listened()
    local name = gate.name()
    local lock = assert(conn:mutex(name):acquire())
    assert(stage.connect():mutex(name):revoke())
    until_true(function() return lock:revoked() end)
    lock:verify()
    lock:verify()
    assert.same({ "acquired", "revoked" }, told(only(list)))
    local semaphore = conn:semaphore(stage.semaphore(1))
    assert(semaphore:acquire()):release() -- opens the connection that publishes
    stage.alarm("memory", conn)
    assert.equal(1, #only(list, "blocked"))
    lock:release()
    assert.equal(1, conn:stats().revoked)
  end)

  it("go to each listener until it is removed, and its error to the log", function()
    local logged = {}
    local conn = stage.connect(nil, { log = function(level, text) table.insert(logged, level .. ": " .. text) end })
    local name, first, second = gate.name(), 0, 0
    local remove = conn:on_event(function() first = first + 1 end)
    conn:on_event(function() second = second + 1; error("mine", 0) end) -- luacheck: ignore
    assert(conn:mutex(name):try_acquire()):release()
    assert.is_true(first >= 2)
    assert.equal(first, second)
    remove()
    remove()
    local before = first
    assert(conn:mutex(name):try_acquire()):release()
    assert.equal(before, first)
    assert.is_true(second > before)
    assert.matches("warning: on_event: mine", table.concat(logged, "\n"), 1, true)
  end)

  it("may be caused by a listener", function()
    local conn = stage.connect()
    local name, other, texts = gate.name(), gate.name(), {}
    conn:on_event(function(event)
      if event.what == "acquired" and event.name == name then assert(conn:mutex(other):try_acquire()):release() end
      if not event.link then table.insert(texts, event.what .. (event.name == name and " a" or " b")) end
    end)
    assert(conn:mutex(name):try_acquire()):release()
    table.sort(texts)
    assert.same({ "acquired a", "acquired b", "released a", "released b" }, texts)
  end)
end)
