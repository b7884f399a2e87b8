-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories of `make prove-cluster` in which two of the three nodes are killed, so that no quorum queue has a majority.
-- This lasts longer than RabbitMQ takes to end the connection of a client that sends such a queue a request
-- (net_ticktime and 5 s). Meanwhile a connection to the third node holds a mutex.
local amqplocks = require "amqplocks"
local client = require "spec.support.client"
local cluster = require "tools.prove.three_nodes"
local contest = require "tools.prove.cluster_contest"
local socket = require "socket"
local until_true = require "spec.support.until"

local nodes = cluster.nodes
local stories = {}

local SECONDS = (tonumber((os.getenv "CLUSTER_TICK")) or 8) + 10
local KHEPRI_GIVES_UP = 30 -- seconds for which Khepri waits for its leader
local TIMEOUT = 3

-- A connection to node 1 that holds a mutex, a slot of a quorum semaphore and the permit of a quorum token semaphore.
local function hold()
  local self = { name = client.unique "majority", losses = {} }
  local conn = assert(amqplocks.connect(nodes[1].url, { on_lost = function(lock, code)
    self.losses[lock] = { code = code, at = contest.now() }
  end }))
  self.conn = conn
  self.tokens = conn:token_semaphore(self.name, { queue_type = "quorum" })
  self.semaphore = conn:semaphore(self.name)
  self.admin = conn:admin(self.name, { queue_type = "quorum" })
  assert(self.admin:create(3))
  assert(self.tokens:create(1))
  self.mutex = assert(conn:mutex(self.name):try_acquire())
  self.slot = assert(self.semaphore:try_acquire())
  self.permit = assert(self.tokens:acquire{ timeout = 10 })
  return self
end

-- Waits for another permit until the timeout, at which there is no majority. (A Lua program waits for one lock at a
-- time; the keeper and the other calls drive this operation.)
local function wait_for_permit(self, seconds)
  local permits = self.conn._session:resource("token_semaphore", self.name, { queue_type = "quorum" })
  self.waiting = permits:acquire{ timeout = seconds }
  until_true(function()
    self.permit:verify()
    return self.waiting:waiting() ~= nil
  end, 10)
end

local function lose_majority()
  for _, one in ipairs{ nodes[2], nodes[3] } do one:kill() end
  return contest.now()
end

local function regain_majority()
  for _, one in ipairs{ nodes[2], nodes[3] } do one:begin_start() end
  for _, one in ipairs{ nodes[2], nodes[3] } do one:await_start() end
  cluster.until_whole()
end

local function words(result, message) return result and "fine" or message end

local function look_at(self, say, fail, seconds)
  local held, why = self.mutex:held()
  local verified, message = self.mutex:verify()
  say("  after %.1f s: held() says %s, verify() says %s", seconds, tostring(why or held), words(verified, message))
  if not (held and verified) then fail("the mutex was lost: %s", tostring(why or message)) end
  for _, loss in pairs(self.losses) do fail("%s was told, after %.1f s", loss.code, loss.at - self.struck) end
end

local function rest(self) socket.sleep(math.max(0, self.struck + SECONDS - contest.now())) end

local function tidy(self)
  self.conn:close()
  local conn = assert(amqplocks.connect(nodes[1].url))
  until_true(function() return conn:admin(self.name):destroy() end, 60)
  until_true(function() return conn:token_semaphore(self.name):destroy() end, 60)
  conn:close()
end

-- Mnesia ------------------------------------------------------------------------------------------------------------

table.insert(stories, {
  name = "nodes 2 and 3 are killed: a mutex on node 1 is kept through an acquire, a release and a timeout",
  tell = function(say, fail)
    if cluster.has_khepri() or os.getenv "CLUSTER_PARTITION" == "pause_minority" then
      return say "  not told: only Mnesia, with `ignore`, lets anything be claimed then"
    end
    local self = hold()
    wait_for_permit(self, TIMEOUT)
    self.struck = lose_majority()
    say("  try_acquire() of a quorum semaphore: %s", words(self.semaphore:try_acquire()))
    local slot, message = self.semaphore:acquire{ timeout = TIMEOUT }
    say("  acquire{ timeout = %d }: %s", TIMEOUT, words(slot, message))
    if slot then say("  its release(): %s", words(slot:release())) end
    say("  release() of its slot: %s", words(self.slot:release()))
    until_true(function() return self.waiting:done() or self.mutex:verify() and false end, 30)
    say("  a permit waited for: %s", words(self.waiting:result()))
    say("  release() of a quorum permit: %s", words(self.permit:release()))
    say("  try_acquire() of one: %s", words(self.tokens:try_acquire()))
    local other = self.conn:mutex(self.name .. "-other"):try_acquire()
    say("  another mutex: %s", words(other and other:release(), "not to be had"))
    rest(self)
    look_at(self, say, fail, contest.now() - self.struck)
    regain_majority()
    tidy(self)
  end,
})

-- Khepri ------------------------------------------------------------------------------------------------------------

table.insert(stories, {
  name = "nodes 2 and 3 are killed: a mutex on node 1 is kept while nothing is claimed (Khepri)",
  tell = function(say, fail)
    if not cluster.has_khepri() then return say "  not told: with Mnesia claims are no danger, either" end
    local self = hold()
    wait_for_permit(self, TIMEOUT)
    self.struck = lose_majority()
    until_true(function() return self.waiting:done() or self.mutex:verify() and false end, 30)
    say("  a permit waited for: %s", words(self.waiting:result()))
    say("  release() of a quorum permit: %s", words(self.permit:release()))
    say("  try_acquire() of one: %s", words(self.tokens:try_acquire()))
    rest(self)
    look_at(self, say, fail, contest.now() - self.struck)
    regain_majority()
    look_at(self, say, fail, contest.now() - self.struck)
    tidy(self)
  end,
})

table.insert(stories, {
  name = "nodes 2 and 3 are killed: a claim loses the mutex on node 1 after 30 s, which is told (Khepri)",
  tell = function(say, fail)
    if not cluster.has_khepri() then return say "  not told: with Mnesia claims are no danger" end
    local self = hold()
    self.struck = lose_majority()
    local claimed = contest.now()
    local _, message = self.conn:mutex(self.name .. "-other"):try_acquire()
    say("  another mutex: %s", words(false, message))
    until_true(function()
      self.mutex:verify()
      return self.losses[self.mutex]
    end, 2 * KHEPRI_GIVES_UP)
    local loss, code = self.losses[self.mutex], select(3, self.mutex:held())
    say("  the mutex is %s, %.1f s after the claim", tostring(code), loss.at - claimed)
    if code ~= "lost" or loss.code ~= "lost" then fail("the mutex is %s, told %s", tostring(code), loss.code) end
    regain_majority()
    tidy(self)
  end,
})

return stories
