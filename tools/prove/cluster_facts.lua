-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The story of `make prove-cluster` about what RabbitMQ 4.3 does to the token of a mutex for clusters, seen by clients
-- without this library: the facts on which docs/specification.md, 6.1, rests. spec/broker/facts/quorum_mutex_spec has
-- those of one node. n is how often the token came back otherwise than by a failure.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local cluster = require "tools.prove.three_nodes"
local contest = require "tools.prove.cluster_contest"
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local socket = require "socket"
local until_true = require "spec.support.until"

local nodes = cluster.nodes

local PATIENCE = 15 -- seconds, of the queue with a consumer whose node is out of reach

local function n_of(self)
  local headers = self.delivery.properties.headers or {}
  return (headers["x-acquired-count"] or 0) - (headers["x-delivery-count"] or 0)
end

local function failures_of(self) return (self.delivery.properties.headers or {})["x-delivery-count"] or 0 end

local function join(queue, node) return single.join(queue, nil, assert(client.connect(nodes[node].url))) end

local KEPT = 20 -- seconds, of a message by a consumer that does not give it back, where this is said

-- A holder through one node, and a waiter through another one.
local function line(holder, waiter, kept)
  local queue = single.queue(true, { ["x-consumer-disconnected-timeout"] = PATIENCE * 1000,
    ["x-consumer-timeout"] = kept and kept * 1000 }, single.QUORUM)
  local one, other = join(queue, holder), join(queue, waiter)
  scene.ring(queue)
  return single.served(one), other
end

local function steps(self, before, by, what)
  if n_of(self) ~= before + by then
    error(("%s: n is %d further, not %d"):format(what, n_of(self) - before, by), 0)
  end
end

local function pulses(self, times)
  for _ = 1, times do
    local before = n_of(self)
    steps(single.pulse(self), before, 1, "a nack")
  end
end

-- The waiter gets the token though the holder has not given it up. Returns after how many seconds.
local function is_moved(waiter, struck, before)
  waiter.delivery = assert(waiter.channel:await("basic.deliver", 90))
  steps(waiter, before, 1, "a silent move")
  return contest.now() - struck
end

-- The queue as its member on a node has it.
local STATE = "begin " .. broker.LOOKUP .. "{Name, _} = amqqueue:get_pid(Q), "
  .. "{ok, {_, State}, _} = ra:local_query({Name, node()}, {erlang, tuple_to_list, []}), "
  .. "lists:flatten(io_lib:format(\"~0p\", [State])) end."

-- Waits until the queue's leader on that node has been told `times` that a consumer is out of reach.
local function until_told(queue, number, times)
  until_true(function ()
    local fine, state = pcall(nodes[number].ask, nodes[number], STATE, queue)
    local rest, once = tostring(state):gsub("{suspected_down,up}", "")
    local is_twice = once == 0 and rest:find("suspected_down", 1, true)
    return fine and (times == 1 and once > 0 or times == 2 and is_twice), state
  end, 60)
end

local MEMBER = "begin " .. broker.LOOKUP .. "{Name, _} = amqqueue:get_pid(Q), sys:%s(Name) end."

-- The queue's leader on node 1 loses node 3, and so does the next one, on node 2.
local function be_told_twice(queue)
  cluster.move_leader(queue, 1, 2)
  cluster.cut(3, { 1, 2 })
  until_told(queue, 1, 1)
  assert(cluster.move_leader(queue, 2, 2), "the leader did not move")
  until_told(queue, 2, 2)
end

-- Other clients come meanwhile: with each command the queue looks at its clock.
local function until_served(self)
  until_true(function ()
    join(self.queue, 2)
    local fine, delivery = pcall(self.channel.await, self.channel, "basic.deliver", 1)
    self.delivery = fine and delivery
    return self.delivery
  end, 10 * KEPT)
  return self
end

local FACTS = {
  { "each nack is answered by one step, while the leader moves", function()
    local holder, moves = line(1, 2), 0
    for round = 1, 12 do
      if cluster.move_leader(holder.queue, round % 3 + 1, 1) then moves = moves + 1 end
      pulses(holder, 2)
    end
    assert(moves > 3, "the leader did not move")
  end },
  { "a client's death hands the token over, and n stays", function()
    local holder, waiter = line(1, 2)
    pulses(holder, 2)
    local before, began = n_of(holder), contest.now()
    holder.channel.client:abort()
    steps(single.served(waiter), before, 0, "a death")
    return contest.now() - began
  end },
  { "a nack is not answered without a majority, and is when there is one again, by one step", function()
    local holder = line(1, 2)
    local before = n_of(holder)
    for i = 2, 3 do nodes[i]:freeze() end
    single.nack(holder)
    holder.channel.client:flush()
    socket.sleep(4)
    local is_silent = holder.channel:silent()
    for i = 2, 3 do nodes[i]:thaw() end
    assert(is_silent, "it was answered")
    steps(single.served(holder), before, 1, "a nack")
    pulses(holder, 3)
  end },
  { "a holder that is cut off is not answered, and loses the token by one step; it is never told", function()
    local holder, waiter = line(1, 2)
    pulses(holder, 2)
    local before, struck = n_of(holder), contest.now()
    cluster.cut(1, { 2, 3 })
    single.nack(holder)
    holder.channel.client:flush()
    local seconds = is_moved(waiter, struck, before)
    assert(seconds >= PATIENCE, "sooner than the argument allows")
    cluster.heal()
    cluster.until_whole()
    assert(holder.channel:silent(), "the holder was told")
    pulses(waiter, 5)
    return seconds
  end },
  { "a reject is handled before the end of its channel, which follows at once", function()
    local holder, waiter = line(3, 2)
    cluster.move_leader(holder.queue, 1, 2)
    for round = 1, 60 do
      local before = failures_of(holder)
      holder.channel:send{ method = "basic.reject", delivery_tag = holder.delivery.delivery_tag, requeue = true }
      holder.channel:send{ method = "channel.close", reply_code = 200, reply_text = "", class_id = 0,
        method_id = 0 }
      holder.channel.client:flush()
      local gone = holder
      holder, waiter = single.served(waiter), join(gone.queue, round % 3 + 1)
      gone.channel.client:abort()
      local failed = failures_of(holder) - before
      if failed ~= 2 then error(("a reject and an end were %d failures"):format(failed), 0) end
    end
  end },
  { "a consumer of which the queue was told twice that it is out of reach is counted beside the next, until the "
    .. "consumer timeout takes the token from it", function()
    local holder, waiter = line(3, 2, KEPT)
    local before, queue = n_of(holder), holder.queue
    be_told_twice(queue)
    join(queue, 1)
    local channel = assert(client.connect(nodes[1].url)):channel()
    local function counted()
      return assert(channel:call{ method = "queue.declare", queue = queue, passive = true }).consumer_count
    end
    assert(counted() == 2, "it is not counted")
    cluster.heal()
    cluster.until_whole()
    steps(until_served(waiter), before, 1, "the consumer timeout")
    until_true(function () return counted() == 1 end)
  end },
  { "its death is not noticed when it is back; the consumer timeout takes the token from it, by one step", function()
    local holder, waiter = line(2, 3, KEPT)
    be_told_twice(holder.queue)
    cluster.heal()
    cluster.until_whole()
    pulses(holder, 3)
    waiter.channel.client:abort()
    holder.channel.client:abort()
    local before, began = n_of(holder), contest.now()
    steps(until_served(join(holder.queue, 1)), before, 1, "the consumer timeout")
    return contest.now() - began
  end },
  { "a holder whose node is killed loses the token, which is one step", function()
    local holder, waiter = line(3, 1)
    local before, struck = n_of(holder), contest.now()
    nodes[3]:kill()
    local seconds = is_moved(waiter, struck, before)
    nodes[3]:restart()
    cluster.until_whole()
    return seconds
  end },
  { "a holder whose node comes back within 15 s keeps the token", function()
    local holder, waiter = line(3, 2)
    cluster.move_leader(holder.queue, 1, 2)
    cluster.cut(3, { 1, 2 })
    until_told(holder.queue, 1, 1)
    socket.sleep(PATIENCE / 2)
    cluster.heal()
    cluster.until_whole()
    pulses(holder, 3)
    socket.sleep(PATIENCE)
    assert(waiter.channel:silent(), "the waiter has it")
    pulses(holder, 3)
  end },
  { "a member that lags delivers late, with counts that are behind", function()
    local holder, late = line(1, 3)
    local before, queue = n_of(holder), holder.queue
    cluster.move_leader(queue, 1, 2)
    local other = join(queue, 2)
    nodes[3]:tell(MEMBER:format "suspend", queue)
    single.release(holder)
    cluster.cut(3, { 1, 2 })
    other.delivery = assert(other.channel:await("basic.deliver", 90))
    cluster.heal()
    cluster.until_whole()
    assert(late.channel:silent(), "it was not late")
    nodes[3]:tell(MEMBER:format "resume", queue)
    steps(single.served(late), before, 1, "a nack")
    steps(other, before, 2, "a nack and a silent move")
    pulses(other, 3)
  end },
}

return { { name = "the token of a mutex for clusters, as clients without this library see it", kind = "quorum_mutex",
  tell = function(say, fail)
    for _, fact in ipairs(FACTS) do
      local fine, result = pcall(fact[2])
      if fine then say("  %s%s", fact[1], result and (": after %.2f s"):format(result) or "") end
      if not fine then fail("not true: %s: %s", fact[1], result) end
      cluster.heal()
      pcall(scene.clear)
    end
  end } }
