-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A quorum mutex on one node: what lock_spec and the others that go through all kinds do not show.
local broker = require "spec.support.broker"
local command = require "spec.support.command"
local kinds = require "spec.support.kinds"
local line = require "spec.support.line"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local QUORUM = { queue_type = "quorum" }
local kind, suite = kinds.all.quorum_mutex, broker.suite

stage.tidy(command.clear)

local function quorum_it(title, fn, tells)
  return (tells or it)(title, kind and fn or function() pending "from 4.3 on" end)
end
local operated_it = broker.operated_it(it, pending)
local function mutex_of(name) return stage.connect():fast_mutex(name, QUORUM) end

quorum_it("a quorum mutex is passed on in order, by releases and by deaths, also of those who wait", function()
  local name, waiters = kind.name(), {}
  local lock = stage.take(mutex_of(name))
  for i = 1, 4 do
    waiters[i] = line.process(name)
    waiters[i]:run("sem = conn:fast_mutex(..., { queue_type = 'quorum' })", name)
    line.begin(waiters[i])
    until_true(function() return line.waits(waiters[i]) end)
  end
  waiters[2]:kill()
  assert(lock:release())
  scene.took(waiters[1])
  waiters[1]:kill()
  scene.took(waiters[3])
  assert.is_true(waiters[3]:run "return lock:verify()")
  line.leave(waiters[3])
  scene.took(waiters[4])
end)

quorum_it("a quorum mutex whose queue confirms nothing is lost, and amqp-lock ends its command", function()
  local names, queues = { kind.name(), kind.name() }, {}
  local lock = stage.take(mutex_of(names[1]))
  local one = command.start({}, "--fast", "--quorum", names[2], "sh", "-c", "echo in; exec sleep 600")
  one:await "in\n"
  stage.fails("busy", mutex_of(names[2]):try_acquire())
  for i, name in ipairs(names) do queues[i] = name .. "-fastmutex" end
  for _, queue in ipairs(queues) do
    stage.undo(function() pcall(suite.resume_queue, suite, queue) end)
    suite:suspend_queue(queue)
  end
  until_true(function() return select(3, lock:held()) == "lost" end) -- for a moment it may be suspect
  assert.same({ "exit", 76 }, { one:wait() }, one:output())
  for i, queue in ipairs(queues) do
    suite:resume_queue(queue)
    stage.take(mutex_of(names[i]), { timeout = 60 })
  end
end, operated_it)

quorum_it("a quorum mutex whose token was taken from its holder is not given out before its holder knows", function()
  local name, other = kind.name(), kind.name()
  for _, one in ipairs{ name, other } do
    stage.take(mutex_of(one)):release()
    local taker = scene.taker(one, 0, one .. "-fastmutex"):served() -- as if the queue had moved the token from it
    for _ = 1, 3 do
      taker.channel:send{ method = "basic.nack", delivery_tag = taker.permit.delivery_tag, requeue = true }
      taker:served()
    end
    taker.channel.client:abort()
  end
  local shell = command.start({}, "-n", "--fast", "--quorum", other, "true") -- ends when the next one need not wait
  stage.fails("busy", mutex_of(name):try_acquire())
  stage.take(mutex_of(name), { timeout = 60 }):release()
  stage.take(mutex_of(name))
  assert.same({ "exit", 75 }, { shell:wait() }, shell:output())
  stage.take(mutex_of(other))
end)
