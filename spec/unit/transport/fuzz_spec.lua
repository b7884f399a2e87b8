-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A broker that sends garbage. The bytes of a scripted broker in a good session are recorded, changed at random (bytes
-- and whole frames), and replayed to a session that does the same things. In every case nothing crashes, every turn
-- returns, every operation ends, and once its connection is gone no lock is held.
--
-- The seed is the number of the run: AMQPLOCKS_FUZZ=17 repeats one alone, AMQPLOCKS_FUZZ=100-200 some of them.
-- AMQPLOCKS_SOAK=1 runs many more.

local Peer = require "spec.support.peer"
local gates = require "spec.unit.locks.rwlock_scene"
local Random = require "spec.support.model.random"
local frames = require "spec.support.frames"
local lua53 = require "spec.support.lua53"
local permits = require "spec.unit.tokens.permit_scene"

local unpack = table.unpack or unpack

local RUNS = os.getenv "AMQPLOCKS_SOAK" and 30000 or 1000

-- Recording ---------------------------------------------------------------------------------------------------------

local SETTINGS = { heartbeat = 10, timeout = 5, seed = 1 }

-- A tape holds functions, what the user does, and { role, bytes }, what the broker says.
local function recorder(tape)
  local peer = Peer.new("whole", SETTINGS)
  for _, link in ipairs{ peer.holder, peer.prober } do
    local feed, attach = link.feed, link.attach
    function link:feed(bytes)
      table.insert(tape, { self.role, bytes })
      return feed(self, bytes)
    end
    function link:attach()
      table.insert(tape, { self.role })
      return attach(self)
    end
  end
  return peer, function (act)
    table.insert(tape, act)
    return act(peer)
  end
end

-- A lock that an operation got, if it got one.
local function lock_of(user, name)
  local op = user[name]
  if op and op:done() and not user[name .. " lock"] then user[name .. " lock"] = op:result() end
  return user[name .. " lock"]
end

local tapes = {}

function tapes.locking(peer, act)
  peer.holder:handshake()
  peer.prober:handshake()
  act(function (user) user.one = user:semaphore("images", { strategy = "last" }):acquire(30) end)
  peer.prober:look{ "images-1-A", "images-1-B", "images-2-A", ["images-3-A"] = "nack" }
  peer.holder:grant(peer.holder:claim("images-2-B", "images-2-A"))
  act(function (user) local lock = lock_of(user, "one"); user.verify = lock and lock:verify() end)
  peer.holder:expect("queue.declare")
  peer.prober:look{ "images-2-A" }
  peer.holder:declared(1, "images-2-B")
  act(function (user) user:pass(5) end)
  local channel = peer.holder:opened()
  peer.holder:send{ channel = channel, method = "basic.qos-ok" }
  peer.prober:expect("heartbeat")
  peer.holder:send(frames.encode_content({ channel = 1, method = "basic.deliver" }, { type = "hello" }, "hello"))
  act(function (user) user.two = user:semaphore("images"):acquire(0) end)
  peer.prober:look{ "images-1-A" }
  peer.holder:ignore()
  peer.holder:refuse(3, 405, "RESOURCE_LOCKED", "queue.declare")
  act(function (user) user:pass(0.1) end)
  peer.prober:look{ "images-1-A", "images-1-B" }
  act(function (user) local lock = lock_of(user, "one"); user.release = lock and lock:release() end)
  peer.holder:ignore()
  peer.holder:deleted(1)
  peer.holder:send{ channel = 3, method = "channel.open-ok" }
  peer.holder:refuse(3, 405, "RESOURCE_LOCKED", "queue.declare")
end

function tapes.administering(peer, act)
  peer.holder:handshake()
  peer.prober:handshake()
  act(function (user) user.admin = user.session:administer("resize", "images", { overshoot = 2 }, 3) end)
  peer.holder:grant(peer.holder:claim("images-admin"))
  peer.prober:barrier()
  peer.prober:look{ "images-1-A", "images-3-A", "images-5-A", "images-6-A" }
  peer.prober:look{}
  local channel = peer.holder:opened()
  peer.holder:ignore()
  peer.holder:declared(channel, "images-6-A")
  peer.holder:declared(channel, "images-5-A")
  peer.holder:deleted(1)
  peer.holder:deleted(1)
  peer.holder:declared(1, "images-2-A")
  peer.holder:deleted(1)
  act(function (user) user.status = user.session:administer("status", "images", {}) end)
  peer.prober:look{ "images-1-A", "images-2-B" }
  peer.prober:look{}
  act(function (user) user.waiting = user.session:wait_released("images", {}, { 1, 2 }) end)
  peer.prober:look{}
  peer.prober:barrier()
  peer.prober:look{}
end

function tapes.alarmed(peer, act)
  peer.holder:handshake()
  peer.prober:handshake()
  act(function (user) user.one = user:semaphore("images"):acquire(30) end)
  local probes = peer.prober:probes()
  peer.prober:answer({ unpack(probes, 1, 10) }, { "images-1-A", "images-1-B" })
  peer.prober:send{ channel = 0, method = "connection.blocked", reason = "low on memory" }
  for channel = 1, 16 do
    if peer.holder:next() == "nothing" then break end
    peer.holder:send{ channel = channel, method = "channel.open-ok" }
    peer.holder:send{ channel = channel, method = "channel.close", reply_code = 404, reply_text = "no queue",
      class_id = 50, method_id = 10 }
  end
  act(function (user) user.two = user:semaphore("images", { probe = "passive" }):acquire(0) end)
  for channel = 1, 16 do
    peer.holder:send({ channel = channel, method = "channel.open-ok" }, { channel = channel,
      method = "queue.declare-ok", queue = "q" })
  end
  peer.prober:send{ channel = 0, method = "connection.unblocked" }
  act(function (user) user.closing = user.session:close() end)
  peer.holder:send{ channel = 0, method = "connection.close-ok" }
  peer.prober:send{ channel = 0, method = "connection.close-ok" }
end

function tapes.taking(peer, act)
  peer.holder:handshake()
  act(function (user) user.one = permits.semaphore(user):acquire(30) end)
  local one = permits.consumes(peer)
  permits.welcome(peer, one)
  permits.asks(peer, one)
  permits.deliver(peer, one)
  permits.answer(peer, one)
  act(function (user) local lock = lock_of(user, "one"); user.verify = lock and lock:verify() end)
  local look = peer.holder:opened()
  peer.holder:expect("queue.declare")
  peer.holder:declared(look, permits.QUEUE)
  act(function (user) user.two = permits.semaphore(user):acquire(200) end)
  local two = permits.consumes(peer)
  permits.welcome(peer, two)
  permits.asks(peer, two)
  permits.answer(peer, two)
  permits.notice(peer, two)
  peer.holder:closes(two.channel)
  act(function (user) user:pass(0.1) end)
  two = permits.consumes(peer)
  permits.welcome(peer, two)
  permits.asks(peer, two)
  permits.answer(peer, two)
  act(function (user) local lock = lock_of(user, "one"); user.release = lock and lock:release() end)
  permits.deliver(peer, two)
  act(function (user) user.three = permits.semaphore(user):acquire(0) end)
  peer.holder:ignore()
  permits.welcome(peer, one)
  peer.holder:ignore()
  permits.answer(peer, one)
  permits.cancelled(peer, one)
  permits.notice(peer, two)
end

-- Waits for the door at a bell that it makes, shuts it, waits behind it, writes, and reads in the end.
function tapes.writing(peer, act)
  local DOOR, BELL = "db-writer", "db-rwbell"
  peer.holder:handshake()
  peer.prober:handshake()
  act(function (user) user.one = user:rwlock("db"):write(30) end)
  gates.looks(peer, DOOR, "held")
  gates.is_no_squatter(peer, DOOR)
  local bell = gates.makes_bell(peer, BELL)
  gates.welcome(peer, bell)
  gates.looks(peer, DOOR, "held", true)
  gates.deliver(peer, bell)
  gates.looks(peer, DOOR, "free", true)
  local door = gates.claim(peer, DOOR)
  gates.replies(peer, door)
  gates.makes_sure(peer, door, "reader")
  gates.tell(peer, door, "amqplocks.token")
  gates.count(peer)
  gates.tell(peer, door, "amqplocks.waiting")
  gates.makes_sure(peer, door)
  act(function (user) local lock = lock_of(user, "one"); user.downgrade = lock and lock:downgrade() end)
  local reader = gates.reader(peer, true)
  gates.replies(peer, reader)
  peer.holder:expect("queue.declare", { queue = DOOR, passive = true })
  peer.holder:declared(door.channel, DOOR)
  peer.holder:delete(DOOR)
  peer.holder:ignore()
  act(function (user) local lock = lock_of(user, "one"); user.release = lock and lock:release() end)
  peer.holder:delete(reader.queue)
  gates.rings(peer, DOOR)
end

-- Steps in and back and in, loses what it holds, and takes a mutex that others wait for.
function tapes.reading(peer, act)
  peer.holder:handshake()
  peer.prober:handshake()
  act(function (user) user.one = user:rwlock("db"):read(30) end)
  gates.looks(peer, "db-writer", "free")
  local reader = gates.reader(peer)
  gates.replies(peer, reader, 1, 2)
  peer.holder:refuse(reader.channel, 405, "RESOURCE_LOCKED", "queue.delete")
  peer.holder:delete(reader.queue, peer.holder:opened())
  gates.rings(peer, "db-writer")
  act(function (user) user:pass(0.01) end)
  gates.looks(peer, "db-writer", "free")
  reader = gates.reader(peer)
  gates.replies(peer, reader)
  act(function (user) lock_of(user, "one") end)
  gates.rob(peer, reader)
  peer.holder:closes(reader.channel)
  gates.rings(peer, "db-writer")
  act(function (user) user.two = user:mutex("db"):acquire(30) end)
  gates.looks(peer, "db-mutex", "free")
  local mutex = gates.claim(peer, "db-mutex")
  gates.replies(peer, mutex)
  act(function (user) lock_of(user, "two") end)
  gates.tell(peer, mutex, "amqplocks.waiting")
  local bell = gates.makes_bell(peer, "db-mutexbell", 2147483647)
  gates.welcome(peer, bell)
  peer.holder:ignore()
  peer.holder:send{ channel = bell.channel, method = "basic.qos-ok" }
  gates.rings(peer, "db-mutexbell")
  gates.deliver(peer, bell)
  act(function (user) local lock = lock_of(user, "two"); user.release = lock and lock:release() end)
  peer.holder:delete("db-mutex")
end

local function record(scenario)
  local tape = {}
  scenario(recorder(tape))
  return tape
end

-- Changing ----------------------------------------------------------------------------------------------------------

local function chance(seed)
  local random = Random.new(seed)
  return function (n) return random:below(n) end
end

local BYTES = { "\0", "\1", "\127", "\128", "\255", "\206", "\3", "\8" }

local byte_changes = {
  function (bytes, at, random) return bytes:sub(1, at - 1) .. string.char(random(256) - 1) .. bytes:sub(at + 1) end,
  function (bytes, at, random) return bytes:sub(1, at - 1) .. BYTES[random(#BYTES)] .. bytes:sub(at + 1) end,
  function (bytes, at) return bytes:sub(1, at - 1) .. bytes:sub(at + 1) end,
  function (bytes, at, random) return bytes:sub(1, at) .. BYTES[random(#BYTES)] .. bytes:sub(at + 1) end,
  function (bytes, at) return bytes:sub(1, at) end,
  function (bytes, at, random) return bytes:sub(1, at) .. bytes:sub(random(at)) end,
}

local METHODS = frames.methods()
local NUMBERS = { 0, 1, 2, 3, 16, 17, 255, 404, 405, 403, 406, 530, 541, 65535 }
local TEXTS = { "", "q", "images-1-A", "images-2-B", "images-admin", ("x"):rep(255) }

local function number(kind, random)
  local value = NUMBERS[random(#NUMBERS)]
  if kind == "octet" then return value % 256 end
  if kind == "longlong" and random(3) == 1 then return random(2) == 1 and -1 or lua53.maxinteger end
  return value
end

local function any_value(kind, random)
  if kind == "bit" then return random(2) == 1 end
  if kind == "table" then return { k = random(2) == 1 or "v" } end
  if kind == "shortstr" or kind == "longstr" then return TEXTS[random(#TEXTS)] end
  return number(kind, random)
end

local function any_frame(random)
  local frame = { channel = random(5) - 1, method = METHODS[random(#METHODS)] }
  for _, field in ipairs(frames.fields(frame.method)) do frame[field.name] = any_value(field.kind, random) end
  return frame
end

local frame_changes = {
  function (list, at) table.remove(list, at) end,
  function (list, at, random) table.insert(list, random(#list), list[at]) end,
  function (list, at, random) list[at], list[random(#list)] = list[random(#list)], list[at] end,
  function (list, at, random) table.insert(list, at, any_frame(random)) end,
  function (list, at, random) list[at] = any_frame(random) end,
  function (list, at, random) if list[at].channel then list[at].channel = NUMBERS[random(#NUMBERS)] end end,
  function (list, at, random)
    local fields = list[at].method and frames.fields(list[at].method) or {}
    local field = fields[#fields > 0 and random(#fields)]
    if field then list[at][field.name] = any_value(field.kind, random) end
  end,
  function (list, at, random)
    local class = random(2) == 1 and 60 or 50
    table.insert(list, at, { channel = random(4) - 1, header = true, class = class, size = random(9) })
  end,
  function (list, at, random) table.insert(list, at, { channel = random(4) - 1, body = ("x"):rep(random(20) - 1) }) end,
}

local function changed(bytes, random)
  local is_whole, list = pcall(function () return frames.decoder():feed(bytes) end)  -- not when it was changed before
  if not is_whole or #list == 0 or random(2) == 1 then
    return byte_changes[random(#byte_changes)](bytes, random(#bytes), random)
  end
  local parts = {}
  frame_changes[random(#frame_changes)](list, random(#list), random)
  for i, frame in ipairs(list) do parts[i] = frames.encode(frame) end
  return table.concat(parts)
end

-- A copy of the tape in which the broker says one to four things wrongly.
local function changed_tape(tape, random)
  local copy, said = {}, {}
  for i, entry in ipairs(tape) do
    copy[i] = entry
    if type(entry) == "table" and entry[2] then table.insert(said, i) end
  end
  for _ = 1, random(4) do
    local i = said[random(#said)]
    if #copy[i][2] > 0 then copy[i] = { copy[i][1], changed(copy[i][2], random) } end
  end
  return copy
end

-- Saying it again ---------------------------------------------------------------------------------------------------

local function is_connected(peer, role)
  local state = peer.session:state(role)
  return state ~= "idle" and state ~= "down"
end

local function replay(tape)
  local peer = Peer.new("whole", SETTINGS)
  for _, entry in ipairs(tape) do
    if type(entry) == "function" then
      entry(peer)
    elseif not entry[2] then
      peer.session:attach(entry[1])
    elseif is_connected(peer, entry[1]) and #entry[2] > 0 then
      peer.session:feed(entry[1], entry[2])
    end
    peer:tick()
    peer.session:output("holder")
    peer.session:output("prober")
  end
  return peer
end

-- Five minutes later; whoever wants a connection is told that there is none.
local function ends(peer)
  for _ = 1, 60 do
    for _, link in ipairs{ peer.holder, peer.prober } do
      if link:wanted() then
        link:attach()
        link:down("connection refused")
      end
    end
    peer:pass(5)
  end
  assert.is_false(is_connected(peer, "holder"))
  assert.is_false(is_connected(peer, "prober"))
  for name, op in pairs(peer) do
    if type(op) == "userdata" and op ~= peer.core_session and not name:find(" lock", 1, true) then
      assert.is_true(op:done(), name .. " never ended")
      lock_of(peer, name)
    end
  end
  for name, lock in pairs(peer) do
    if name:find(" lock$") and type(lock) == "userdata" then assert.is_false((lock:held()), name) end
  end
end

local function runs()
  local only = os.getenv "AMQPLOCKS_FUZZ"
  if not only then return 1, RUNS end
  local first, last = only:match("^(%d+)%-?(%d*)$")
  return tonumber(first), tonumber(last) or tonumber(first)
end

describe("a broker gone mad", function ()
  for _, name in ipairs{ "locking", "administering", "alarmed", "taking", "writing", "reading" } do
    it("crashes nothing and stops nothing: " .. name, function ()
      local tape = record(tapes[name])
      ends(replay(tape))
      local first, last = runs()
      for run = first, last do
        local fine, problem = pcall(function () ends(replay(changed_tape(tape, chance(run)))) end)
        if type(problem) == "table" then problem = problem.message end
        if not fine then error(("run %d: %s"):format(run, problem), 0) end
      end
    end)
  end

  it("may say anything at all before a word was said", function ()
    local random = chance(1)
    for _ = 1, RUNS / 3 do
      local peer = Peer.new("whole", SETTINGS)
      local op = peer.session:open()
      peer.holder:attach()
      local bytes = {}
      for i = 1, random(200) do bytes[i] = string.char(random(3) == 1 and random(256) - 1 or random(4) - 1) end
      peer.holder:feed(table.concat(bytes))
      peer:pass(5)
      assert.is_true(op:done())
    end
  end)
end)

-- What the fuzzers of tools/fuzz have left behind: inputs that reach everything they have ever reached, and those that
-- were findings once. Run without a fuzzer, by the compiler and with the sanitizers of this run.
describe("the corpus", function ()
  for _, name in ipairs{ "session", "session.found", "url", "url.found" } do
    it("is harmless: " .. name, function ()
      local path, target, inputs, output = "tools/fuzz/corpus/" .. name, name:match "^%a+", {}, {}
      for line in io.lines(path) do
        if not line:find "^#" then table.insert(inputs, line) end
      end
      local program = assert(os.getenv "AMQPLOCKS_REPLAY", "make has not started this run")
      local command = "grep -v '^#' %s | '%s%s' 2>&1; echo status $?"
      for line in io.popen(command:format(path, program, target)):lines() do table.insert(output, line) end
      local last = table.concat(output, "\n", math.max(1, #output - 30))
      assert.equal("status 0", output[#output], "the last number is the input's:\n" .. last)
      assert.equal(tostring(#inputs), output[#output - 1])
    end)
  end
end)

describe("found by them", function ()
  it("nobody connects for a session that was closed, whoever asks by its prober", function ()
    local owner = Peer.open "whole"
    local borrower = owner:borrower()
    owner.session:abort()
    for _ = 1, 2 do
      borrower:failed(borrower:semaphore("images"):acquire(5), "closed")
      assert.is_false(owner.prober:wanted())
    end
  end)
end)
