-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local broker = require "spec.support.broker"
local client = require "spec.support.client"
local kinds = require "spec.support.kinds"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- A lock on slot 1 of a new semaphore, the name of that, and the connection and semaphore it was taken on.
local function locked(slots, url, options)
  local name = stage.semaphore(slots or 1)
  local conn = stage.connect(url, options)
  local sem = conn:semaphore(name)
  return stage.take(sem), name, conn, sem
end

-- The lock is gone for good, and says so whatever it is asked.
local function assert_lost(lock)
  for _, what in ipairs{ "held", "verify", "release" } do stage.fails("lost", lock[what](lock)) end
end

stage.tidy()

it("a lock has a kind, the name, a ticket of its own, the time since when, and a text", function()
  for key, one in pairs(kinds.all) do
    local kind, name, before = one.kind or key, one.name(), os.time()
    local lock = stage.take(one.over(stage.connect(), name))
    assert.same({ kind, name, kind == "slot" and 1 or nil }, { lock.kind, lock.name, lock.slot })
    assert.matches("^%x+$", lock.ticket)
    assert.equal(16, #lock.ticket)
    assert.is_true(stage.is_since(before, lock.acquired_at))
    local text = ('amqplocks.lock ("%s", %s, '):format(name, kind == "slot" and "slot 1" or kind)
    assert.equal(text .. "held)", tostring(lock))
    assert(lock:release())
    assert.equal(text .. "not_held)", tostring(lock))
    assert.not_equal(lock.ticket, stage.take(one.over(stage.connect(), name), { timeout = 60 }).ticket)
  end
end)

-- As rabbitmqctl's list_queues shows it, which takes seconds. (cli_listing_spec has those who wait.)
operated_it("an operator sees a lock as an exclusive queue that keeps nothing, has one consumer, and says whose it is, "
  .. "since when", function()
  local lock, name = locked(1, nil, { name = "somebody" })
  local about = broker.suite:strings([=[begin
    {ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, $1)),
    [{arguments, All} | Rest] = rabbit_amqqueue:info(Q, [arguments, auto_delete, durable, consumers]),
    [io_lib:format("~s=~w", [Key, Value]) || {Key, Value} <- Rest ++ [{K, V} || {K, _, V} <- All, is_integer(V)]]
      ++ [[K, "=", V] || {K, _, V} <- All, is_binary(V)] end]=], stage.holder(name, 1))
  local found = {}
  for _, pair in ipairs(about) do
    local key, value = pair:match "^(.-)=(.*)$"
    found[key] = value
  end
  local since = tonumber(found["x-amqplocks-acquired-at"])
  assert.is_true(stage.held(name, 1) and math.abs(since - lock.acquired_at) < 60)
  found["x-amqplocks-acquired-at"] = nil
  assert.same({ auto_delete = "true", durable = "false", consumers = "1", ["x-queue-type"] = "classic",
    ["x-max-length"] = "0", ["x-overflow"] = "drop-head", ["x-amqplocks-holder"] = "somebody",
    ["x-amqplocks-ticket"] = lock.ticket }, found)
end)

-- What the operator does to a lock, whether the other lock of its connection is lost as well, the words that its holder
-- is told, and the code of the next acquire, if that fails.
for what, case in pairs{
  ["deletes its queue"] = { function(of) broker.suite:delete_queue(stage.holder(of.name, 1)) end },
  ["closes its channel"] = { function(of) broker.suite:close_channel(stage.holder(of.name, 1)) end },
  ["closes its connection"] = { function(of) broker.suite:close_connection(of.label .. " holder") end, is_all = true,
    words = "the operator wants it" },
  ["deletes its user"] = { function(of) broker.suite:delete_user(of.label) end, is_all = true, code = "auth" },
} do
  operated_it("a lock is lost, and stays lost, when an operator " .. what, function()
    local label = client.unique "user"
    local url = broker.suite:add_user(label, ".*", ".*", ".*")
    stage.undo(function() if not case.code then broker.suite:delete_user(label) end end)
    local lock, name, _, sem = locked(2, url, { name = label })
    local second = stage.take(sem)
    case[1]{ name = name, label = label }
    stage.until_free(name, 1)
    local rival = stage.take(stage.connect():semaphore(name), { timeout = 60 })
    if not case.is_all then assert.equal(1, rival.slot) end
    assert.matches(case.words or "", stage.fails("lost", lock:verify()), 1, true)
    assert_lost(lock)
    assert.is_true(stage.held(name, rival.slot))
    if case.is_all then assert_lost(second) else assert.is_true(second:held() and second:verify()) end
    assert(rival:release())
    local again, _, code = sem:acquire{ timeout = 60 }
    assert.equal(case.code, code)
    lock = nil -- luacheck: ignore 311
    for _ = 1, 2 do collectgarbage() end
    assert.is_true(not again or again:verify() and stage.held(name, again.slot))
  end)
end

describe("a lock whose broker is silent", function()
  -- Nobody tells the client. What it asks is not answered, and never with yes.
  it("is never verified after the broker has lost the connection", function()
    local between, name = proxy.start(), stage.semaphore(1)
    local conn = stage.connect(between.url, { timeout = 5 })
    local lock = stage.take(conn:semaphore(name))
    between:cut(1, "broker")
    stage.until_free(name, 1)
    stage.take(stage.connect():semaphore(name))
    stage.fails("unreachable", lock:verify())
    stage.fails("unreachable", lock:release())
    assert.is_false((lock:held()))
    assert.is_true(stage.held(name, 1))
  end)

  it("is free when the answer to its release gets lost", function()
    local between, name = proxy.start(), stage.semaphore(1)
    local conn = stage.connect(between.url, { timeout = 5 })
    local lock = stage.take(conn:semaphore(name))
    between:switch("down", "drop", 1)
    stage.fails("unreachable", lock:release())
    stage.until_free(name, 1)
    stage.fails("not_held", lock:held())
    stage.take(stage.connect():semaphore(name))
  end)

  -- The round trip that keeps it certain then goes over a channel that is not its own.
  it("is not suspect because its connection has no channel left", function()
    local name, busy = stage.semaphore(2), stage.semaphore(1)
    local conn = stage.connect(os.getenv "AMQP_URL" .. "?channel_max=4", { heartbeat = 1 })
    -- `limit` is the answer as long as a slow broker has not answered what was asked last, on channels of its own.
    local sem = conn:semaphore(name)
    local function take() return until_true(function() return sem:try_acquire() end) end
    local locks = { take(), take() }
    stage.occupy(busy, 1)
    until_true(function()
      local _, why, code = conn:semaphore(busy):acquire{ timeout = 4 }
      return code == "timeout", why
    end)
    for slot, lock in ipairs(locks) do
      until_true(function() return lock:held() end) -- as it may not be for a moment, where the broker is slow
      assert.is_true(stage.held(name, slot))
    end
  end)
end)

describe("a lock whose user may no longer do what it needs", function()
  local function revoked()
    local url, user = stage.user(".*", ".*", ".*")
    local lock, name, _, sem = locked(1, url, { timeout = 5 })
    broker.suite:permit(user, "", "", "", stage.holder(name, 1))
    return lock, name, sem, user
  end

  -- The undoing of the claim is refused too; the broker deletes the queue with its consumer's channel.
  operated_it("stays held; its release leaves nothing held, and it is taken again once that is permitted", function()
    local lock, name, sem, user = revoked()
    assert.is_true(lock:held() and stage.held(name, 1))
    if not stage.client():since(4, 3) then assert.is_true(lock:verify()) end
    stage.fails("refused", lock:release())
    stage.until_free(name, 1)
    assert.is_false((lock:held()))
    broker.suite:permit(user, ".*", ".*", ".*")
    assert.equal(1, stage.take(sem, { timeout = 60 }).slot)
    assert.is_true(stage.held(name, 1))
  end)

  operated_it("is lost when it is verified, where the broker asks for a permission to look, and says so", function()
    if not stage.client():since(4, 3) then return pending "of brokers from 4.3 on" end
    local lock, name = revoked()
    assert.matches("ACCESS_REFUSED", stage.fails("lost", lock:verify()))
    stage.until_free(name, 1)
    stage.fails("lost", lock:held())
  end)
end)
