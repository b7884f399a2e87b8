-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What is special about the fast mutex: its queue. The rest is in token_semaphore_spec and lock_spec; tokens that
-- others publish or take away are in sim/crowd_spec. Waiters here ring only every ten minutes unless stated otherwise,
-- so one that gets the mutex was served by the broker.
local broker = require "spec.support.broker"
local line = require "spec.support.line"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local fails, join, took, new_name = stage.fails, scene.join, scene.took, scene.fast_name
local SECONDS = 60

stage.tidy()

local queue = scene.fast.queue

-- So many tokens lie ready, and so many consume: the holder and those who wait.
local function until_at(name, tokens, consumers) line.until_at(name, tokens, consumers, queue(name)) end

local function mutex_of(name, conn) return (conn or stage.connect()):fast_mutex(name) end

local function hold(name, options, conn) return stage.take(mutex_of(name, conn), options) end

local function worker(name, options) return scene.worker(scene.fast, name, options) end

local function purge(name)
  local channel = stage.client():channel()
  local answer = assert(channel:call{ method = "queue.purge", queue = queue(name) })
  channel:close()
  return answer.message_count
end

describe("the queue of a fast mutex", function()
  it("is durable, has one active consumer, keeps one token, refuses more, and expires unused", function()
    local name = new_name()
    hold(name)
    until_at(name, 0, 1)
    -- The broker refuses a declare that differs in anything.
    assert(stage.client():declare(queue(name), { durable = true, arguments = { ["x-queue-type"] = "classic",
      ["x-single-active-consumer"] = true, ["x-max-length"] = 1, ["x-overflow"] = "reject-publish",
      ["x-expires"] = 600000 } }))
  end)

  it("that is deleted is lost for its holder, which is told, and made anew by a waiter", function()
    local name, told = new_name(), {}
    local conn = stage.connect(nil, { on_lost = function(...) table.insert(told, { ... }) end })
    local lock, waiter = hold(name, nil, conn), join(worker(name))
    stage.delete(queue(name))
    took(waiter)
    until_true(function() return not lock:held() end)
    fails("lost", lock:held())
    fails("lost", lock:verify())
    fails("lost", lock:release())
    assert.same({ lock, "lost" }, { told[1][1], told[1][2] })
    assert.is_true(waiter:run("return lock:verify()"))
    fails("busy", mutex_of(name, conn):try_acquire())
  end)

  -- Each in one write: before 4.0 the broker moved one consumer in five, unless it was asked not to.
  it("that is deleted and declared anew is lost for its holder, and not moved to the new one", function()
    local conn, raw, names, locks = stage.connect(), stage.client():channel(), {}, {}
    for i = 1, 20 do names[i] = new_name(true) end
    for _ = 1, 5 do
      for i, name in ipairs(names) do
        locks[i] = hold(name, { timeout = SECONDS }, conn)
        raw:send{ method = "queue.delete", queue = queue(name), no_wait = true }
        raw:send{ method = "queue.declare", queue = queue(name), durable = true, no_wait = true }
      end
      assert(raw:call{ method = "basic.qos", prefetch_count = 1 })
      for i, lock in ipairs(locks) do
        until_true(function() return not lock:held() end)
        stage.delete(queue(names[i]))
      end
    end
  end)

  it("of another shape is a conflict, and another connection's own is squatted", function()
    local plain, own = new_name(true), new_name(true)
    local raw = stage.client()
    assert(raw:declare(queue(plain), { durable = true }))
    assert.matches("inequivalent arg", fails("conflict", mutex_of(plain):try_acquire()), 1, true)
    assert(raw:declare(queue(own), { exclusive = true }))
    fails("squatted", mutex_of(own):acquire{ timeout = SECONDS })
  end)

  it("is made anew, or found to be another's, when it was deleted between two acquires of one object", function ()
    local name, raw = new_name(true), stage.client()
    local mutex, other = mutex_of(name), mutex_of(name)
    for _, user in ipairs{ mutex, other } do assert(stage.take(user, { timeout = SECONDS }):release()) end
    stage.delete(queue(name))
    local lock = stage.take(mutex)
    fails("busy", other:try_acquire())
    assert(lock:release())
    stage.take(other, { timeout = SECONDS }):release()
    for _, has_token in ipairs{ true, false } do
      stage.delete(queue(name))
      assert(raw:declare(queue(name), { durable = true }))
      if has_token then scene.publish(raw, queue(name), { message_id = "1.other" }) end
      fails("conflict", mutex:try_acquire())
      fails("conflict", other:acquire{ timeout = SECONDS })
      stage.delete(queue(name))
      for _, user in ipairs{ mutex, other } do assert(stage.take(user, { timeout = SECONDS }):release()) end
    end
  end)

  it("is not made beside a held plain mutex of its name; an idle one does not matter", function()
    local name = new_name()
    local plain = stage.take(stage.connect():mutex(name))
    assert.matches("in use as a plain mutex", fails("conflict", mutex_of(name):try_acquire()))
    fails("conflict", mutex_of(name):acquire{ timeout = SECONDS })
    assert.is_true(plain:verify() and plain:release())
    hold(name)
  end)
end)

describe("a user of fast mutexes", function()
  operated_it("who may not declare, or not read, is refused, and leaves nothing standing", function()
    local name = new_name()
    assert(hold(name):release())
    fails("refused", mutex_of(name, (stage.connect_as(".*", ".*", ""))):try_acquire())
    fails("refused", mutex_of(name, (stage.connect_as("", ".*", ".*"))):acquire{ timeout = SECONDS })
    until_at(name, 1, 0)
  end)

  operated_it("who may not publish acquires one that has a token, and is refused where there is none", function()
    local name, conn = new_name(), (stage.connect_as(".*", "", ".*"))
    assert(hold(name):release())
    until_at(name, 1, 0)
    assert.is_true(hold(name, nil, conn):release())
    until_at(name, 1, 0)
    purge(name)
    fails("refused", mutex_of(name, conn):try_acquire())
    assert(hold(name):release())
  end)
end)

describe("an alarm", function()
  operated_it("does not touch a fast mutex that has a token; one that has none says blocked", function()
    local name, other = new_name(), new_name()
    local lock = hold(name)
    local waiter = join(worker(name), { poll = 0.5 })
    stage.alarm "memory"
    assert.is_true(lock:held() and lock:verify() and lock:release())
    took(waiter)
    line.leave(waiter)
    assert.is_true(hold(name, { timeout = SECONDS }):release()) -- the token may be on its way back
    until_true(function()
      local _, _, code = mutex_of(other, stage.connect(nil, { timeout = 5 })):try_acquire()
      return code == "blocked" or code == "unreachable", code
    end)
    broker.suite:alarm(false, "memory")
    hold(other, { timeout = SECONDS })
  end)
end)
