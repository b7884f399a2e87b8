-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Policies of the broker, and defaults of a virtual host, that conflict with the arguments of declared queues. They
-- have the effects that docs/guide.md describes, and locks still exclude each other.
local broker = require "spec.support.broker"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

stage.tidy()

-- A virtual host of its own, so that a policy meets nobody else; gives its URL and its name.
local function vhost() return stage.vhost{ connections = 50 } end

local function policy(on, pattern, definition)
  broker.suite:set_policy(on, "meddling", pattern, definition)
end

describe("a policy with", function()
  operated_it("reject-publish leaves our slots alone; one made without arguments is unavailable, which is not absent",
    function()
      local url, on = vhost()
      local conn, other = stage.connect(url), stage.client(url)
      policy(on, "[-]A$", '{"overflow":"reject-publish","max-length":0}')
      assert.equal(2, conn:admin("ours"):create(2))
      assert.is_true(stage.take(conn:semaphore("ours")):release())
      assert(other:declare("theirs-1-A", { durable = true }))
      until_true(function() return other:probe("theirs-1-A") == "unavailable" end)
      stage.fails("unavailable", conn:semaphore("theirs"):try_acquire())
      assert.equal(1, conn:admin("theirs"):slots())
    end)

  operated_it("expires takes the slots away: a holder keeps its own and is told, others find no semaphore", function()
    local url, on = vhost()
    local conn = stage.connect(url)
    assert.equal(1, conn:admin("brief"):create(1))
    local lock = stage.take(conn:semaphore("brief"))
    policy(on, "^brief-", '{"expires":100}')
    until_true(function() return select(3, lock:verify()) == "removed" end)
    assert.is_true(lock:held())
    assert.is_true(lock:release())
    stage.fails("not_found", stage.connect(url):semaphore("brief"):acquire{ timeout = 60 })
  end)

  operated_it("message-ttl takes the doorbell's tokens: a waiter finds by looking", function()
    local url, on = vhost()
    local conn, other = stage.connect(url), stage.client(url)
    policy(on, "[-]bell$", '{"message-ttl":0}') -- which is for what is published from now on
    assert.equal(1, conn:admin("still"):create(1))
    until_true(function() return other:message_count("still-bell") == 0 end)
    local lock = stage.take(conn:semaphore("still"))
    local waiter = process.start()
    waiter:run("sem = require('amqplocks').connect((...)):semaphore('still')", url)
    waiter:begin("return assert(sem:acquire{ timeout = 60, poll = 0.1 }).slot")
    assert.is_true(lock:release())
    assert.equal(1, waiter:finish())
  end)

  operated_it("message-ttl on permits loses them, and repair brings them back", function()
    local url, on = vhost()
    local permits = stage.connect(url):token_semaphore("fleeting")
    policy(on, "\\.semaphore$", '{"message-ttl":0}')
    assert.equal(2, permits:create(2))
    stage.fails("busy", permits:try_acquire())
    broker.suite:clear_policy(on, "meddling")
    until_true(function() return permits:repair() == 2 and permits:try_acquire() end):release()
  end)
end)

operated_it("a virtual host whose queues are quorum by default gets those that we ask for; locks of every kind work",
  function()
    local url, name = stage.vhost({ connections = 50 }, "quorum")
    local conn = stage.connect(url)
    assert(stage.client(url):declare("plain", { durable = true }))
    assert.equal(1, conn:admin("images"):create(1))
    assert.equal(1, conn:token_semaphore("licences"):create(1))
    local locks = { stage.take(conn:semaphore("images")), stage.take(conn:mutex("db")),
      stage.take(conn:token_semaphore("licences")), assert(conn:rwlock("catalog"):try_read()) }
    local others = broker.suite:strings("[element(4, amqqueue:get_name(Q)) || Q <- rabbit_amqqueue:list($1), "
      .. "amqqueue:get_type(Q) =/= rabbit_classic_queue]", name)
    assert.same({ "plain" }, others)
    for _, lock in ipairs(locks) do
      assert.is_true(lock:held())
      assert.is_true(lock:release())
    end
  end)
