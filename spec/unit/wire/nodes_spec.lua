-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Several nodes of one cluster: which one is tried when, for how long, and what ends an attempt.
local Peer = require "spec.support.peer"
local deciders = require "spec.support.deciders"

teardown(deciders.remove)

local LIST = { "amqp://me:secret@a", "amqp://me:secret@b:5673", "amqp://me:secret@c" }
local A, B, C = "a:5672", "b:5673", "c:5672"

-- The holder's connection has lasted, and ends without a word; another one is wanted. Returns who wants it.
local function cut(peer)
  peer:pass(5)
  peer.holder:ignore()
  peer.holder:down()
  return peer.session:open()
end

-- A connection is wanted. Returns the peer, the operation that wants it.
local function begun(settings)
  local all = { url = LIST, timeout = 6, heartbeat = 60 }
  for key, value in pairs(settings or {}) do all[key] = value end
  local peer = Peer.new(all)
  return peer, peer.session:open()
end

-- The broker that answers belongs to this cluster. It may be told no password.
local function greeted(link, cluster)
  link:attach()
  link:expect("protocol header")
  link:send(link.start{ server_properties = { product = "RabbitMQ", version = "4.3.6", cluster_name = cluster } })
end

-- Waits until a connection is due.
local function await(peer)
  peer.session:open()
  while not peer.holder:due() do peer:pass(math.max(peer:tick(), 1e-6)) end
end

describe("a list of nodes", function ()
  -- The node that is to be connected now, at once.
  local function next_of(peer, link)
    assert.is_true(link:due(), "no connection is due")
    local host, port = peer.session:address(link.role)
    return host .. ":" .. port
  end

  local function fails(peer)
    local node = next_of(peer, peer.holder)
    peer.session:fail("holder", "unreachable", "connection refused")
    return node
  end

  it("is tried one after another, at once, each once, and says why each failed", function ()
    local peer, op = begun()
    assert.equal(A, fails(peer))
    assert.equal(B, next_of(peer, peer.holder))
    peer.holder:attach()
    peer.holder:down("end of file")
    assert.is_false(op:done())
    assert.equal(C, fails(peer))
    peer:failed(op, "unreachable", "none of 3 hosts: a:5672: connection refused; b:5673: end of file; " ..
      "c:5672: connection refused")
  end)

  it("goes on after an end of the handshake that is the node's own affair", function ()
    local peer, op = begun()
    peer.holder:tuned()
    peer.holder:ends(530, "node connection limit (7) is reached")
    assert.is_false(op:done())
    assert.equal(B, next_of(peer, peer.holder))
    peer.holder:attach()
    peer.holder:feed("AMQP\0\1\0\0")
    assert.is_false(op:done())
    assert.equal(C, next_of(peer, peer.holder))
  end)

  it("is tried no further after an end that every node would have, and goes on later", function ()
    local peer, op = begun()
    fails(peer)
    greeted(peer.holder)
    peer.holder:ends(403, "ACCESS_REFUSED - Login was refused")
    peer:failed(op, "auth", B)
    await(peer)
    assert.equal(C, next_of(peer, peer.holder))
  end)

  it("gives each its share of the time, and no more", function ()
    local peer, op = begun()
    for _, node in ipairs{ A, B, C } do
      assert.equal(node, next_of(peer, peer.holder))
      assert.equal(2, (select(3, peer.session:address("holder"))))
      peer.holder:attach()
      assert.equal(2, peer:tick())
      peer:pass(1.999)
      assert.equal("greeting", peer.holder:state())
      assert.is_false(op:done())
      peer:pass(0.001)
    end
    peer:failed(op, "unreachable", "none of 3 hosts", "a:5672: the broker did not finish the AMQP handshake in time")
  end)

  it("is tried again after a pause for the whole attempt, not for each node", function ()
    local peer, expected = begun(), 0.05
    for _ = 1, 6 do
      for _ = 1, 3 do fails(peer) end
      local pause = peer.holder:pause()
      assert.is_true(pause >= expected / 2 - 1e-6 and pause <= expected + 1e-6, pause)
      expected = expected * 2
      await(peer)
    end
  end)

  it("is gone on with at the next node when a connection is lost, of which the lost one is told", function ()
    local peer = begun()
    peer.holder:handshake()
    for _, node in ipairs{ B, C, A } do
      local op = peer:semaphore("images"):acquire(0)
      local lost = node == B and "a:5672" or node == C and B or C
      cut(peer)
      peer:failed(op, "unreachable", ("the connection to %s was lost"):format(lost))
      assert.equal(node, next_of(peer, peer.holder))
      peer.holder:handshake()
    end
  end)

  it("leads the prober where the holder got through", function ()
    local peer = begun()
    fails(peer)
    peer.holder:handshake()
    peer:semaphore("images"):acquire(0)
    assert.equal(B, next_of(peer, peer.prober))
  end)

  it("of two clusters is a conflict, before the other one is told the password", function ()
    local peer = begun()
    peer.holder:handshake{ cluster = "rabbit@one" }
    local op = cut(peer)
    greeted(peer.holder, "rabbit@two")
    peer.holder:silent()
    peer:failed(op, "conflict", B, '"rabbit@two"', '"rabbit@one"')
    await(peer)
    assert.equal(C, next_of(peer, peer.holder))
    peer.holder:handshake{ cluster = "rabbit@one" }
  end)

  it("of two clusters is a conflict also with a prober", function ()
    local peer = begun{ url = "amqp://a" }
    peer.holder:handshake{ cluster = "rabbit@one" }
    local op = peer:semaphore("images"):acquire(0)
    greeted(peer.prober, "rabbit@two")
    peer:failed(op, "conflict", '"rabbit@one"', '"rabbit@two"')
  end)

  it("of two clusters is no conflict where one did not take the connection, or gives no name", function ()
    local peer = begun()
    greeted(peer.holder, "rabbit@two")
    peer.holder:ends(403, "ACCESS_REFUSED")
    await(peer)
    peer.holder:handshake{ cluster = "rabbit@one" }
    cut(peer)
    peer.holder:handshake()
  end)

  it("of two clusters is a conflict with a single address, if it was another one before", function ()
    for url, code in pairs{ ["amqp://b"] = "conflict", ["amqp://a:5673"] = "conflict", ["amqp://a"] = false } do
      local peer = begun{ url = "amqp://a" }
      peer.holder:handshake{ cluster = "rabbit@one" }
      local op = cut(peer)
      assert.is_true(peer.session:readdress("holder", { url = url }))
      if code then
        greeted(peer.holder, "rabbit@two")
        peer:failed(op, code, '"rabbit@two"')
      else
        peer.holder:handshake{ cluster = "rabbit@two" }
      end
    end
  end)

  it("in random order has each of them once, first this one and then that one", function ()
    local firsts = {}
    for seed = 1, 40 do
      local peer, found = begun{ order = "random", seed = seed }, {}
      for i = 1, 3 do found[i] = fails(peer) end
      firsts[found[1]] = true
      table.sort(found)
      assert.same({ A, B, C }, found)
    end
    assert.same({ [A] = true, [B] = true, [C] = true }, firsts)
  end)
end)

-- The transport tells the addresses of a name before it connects.
describe("a name with several addresses", function ()
  local ONE, TWO, THREE = "192.0.2.1", "192.0.2.2", "2001:db8::3"
  local ALL = { ONE, TWO, ONE, THREE } -- a hosts file may have one twice

  -- Where the link is to be connected now; a name has these addresses.
  local function next_of(peer, link, addresses, spent)
    assert.is_true(link:due(), "no connection is due")
    if peer.session:unresolved(link.role) then peer.session:resolve(link.role, addresses or ALL, spent or 0) end
    assert.is_nil(peer.session:unresolved(link.role))
    return (peer.session:address(link.role))
  end

  local function tries(peer, link, expected, addresses)
    for _, address in ipairs(expected) do
      assert.equal(address, next_of(peer, link, addresses))
      peer.session:fail(link.role, "unreachable", "name:5672: refused")
    end
  end

  local function opens(peer, link, address, addresses)
    assert.equal(address, next_of(peer, link, addresses))
    link:handshake()
  end

  it("has each tried once, and tells what is wrong with each, in every attempt", function ()
    local peer, op = begun{ url = "amqp://name" }
    for _ = 1, 2 do
      tries(peer, peer.holder, { ONE, TWO, THREE })
      peer:failed(op, "unreachable", "none of 3 hosts: 192.0.2.1: name:5672: refused; " ..
        "192.0.2.2: name:5672: refused; 2001:db8::3: name:5672: refused")
      await(peer)
      op = peer.session:open()
    end
  end)

  it("begins an attempt with the one after the last, in whatever order they come", function ()
    local peer = begun{ url = "amqp://name" }
    opens(peer, peer.holder, ONE)
    cut(peer)
    opens(peer, peer.holder, TWO, { THREE, ONE, TWO, "192.0.2.4" })
    cut(peer)
    opens(peer, peer.holder, ONE, { THREE, TWO, ONE })
    cut(peer)
    opens(peer, peer.holder, "192.0.2.7", { "192.0.2.7", "192.0.2.8" })
  end)

  it("divides its share of the time, less what the resolver took, and has the prober where the holder is", function ()
    local peer = begun{ url = "amqp://name,192.0.2.9" }
    next_of(peer, peer.holder, { ONE, TWO }, 1)
    assert.equal(1, (select(3, peer.session:address "holder")))
    tries(peer, peer.holder, { ONE })
    opens(peer, peer.holder, TWO)
    peer:semaphore("images"):acquire(0)
    opens(peer, peer.prober, TWO, { THREE, TWO, ONE })
  end)
end)

it("another node is tried after a failure that may be the node's own, and after no other", function ()
  local is_tried = { unreachable = true, protocol = true, limit = true }
  for code, goes_on in pairs(deciders.codes_that_go_on()) do assert.equal(is_tried[code] or false, goes_on, code) end
end)
