-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- An administrator asks for a lock back. The holder lets go, or does not.
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local REVOKE = "amqplocks.revoke"

describe("a holder that is asked by a message from whoever", function()
  after_each(stage.clear)
  teardown(stage.check)

  it("knows it without calling anything that waits, and holds on", function()
    local name = stage.semaphore(2)
    local sem = stage.connect():semaphore(name)
    local lock, other = stage.take(sem), stage.take(sem)
    local asking = stage.client()
    for _ = 1, 10 do assert.equal("present", asking:probe(stage.holder(name, 1))) end
    assert.equal("present", asking:probe(stage.holder(name, 1), { type = "amqplocks.token" }))
    assert.equal("present", asking:probe(stage.holder(name, 2), { type = REVOKE }))
    until_true(function() return other:revoked() end)
    assert.is_true(lock:verify()) -- its answer comes behind what the queue had for it
    assert.is_false(lock:revoked())
    assert.is_true(other:held() and other:verify() and stage.held(name, 2))
    assert.equal("present", asking:probe(stage.holder(name, 1), { type = REVOKE, delivery_mode = 2 }))
    until_true(function() return lock:revoked() end)
    assert.is_true(lock:release() and other:release())
    assert.is_true(lock:revoked() and other:revoked())
  end)

  it("knows it while a second process of it computes, and lets go", function()
    local name = stage.semaphore(1)
    local holding = stage.process(name)
    holding:run("lock = assert(sem:try_acquire())")
    holding:begin("while not lock:revoked() do end return lock:held(), lock:release()")
    assert.equal("present", stage.client():probe(stage.holder(name, 1), { type = REVOKE }))
    local held, released = holding:finish()
    assert.is_true(held and released)
    assert.is_true(stage.free(name, 1))
  end)

  it("is told nothing that was meant for the holder before it", function()
    local name = stage.semaphore(1)
    local conn, asking = stage.connect(), stage.client()
    assert.equal("absent", asking:probe(stage.holder(name, 1), { type = REVOKE }))
    local first = stage.take(conn:semaphore(name))
    assert.equal("present", asking:probe(stage.holder(name, 1), { type = REVOKE }))
    until_true(function() return first:revoked() end)
    assert.is_true(first:release())
    local second = stage.take(stage.connect():semaphore(name))
    assert.is_true(second:verify())
    assert.is_false(second:revoked())
  end)
end)
