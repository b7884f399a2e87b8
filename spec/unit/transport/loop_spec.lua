-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Sessions of event loops, which tell the session the time: what happens after the loop had no time for them.
local core = require "amqplocks.core"
local Peer = require "spec.support.peer"

local HEARTBEAT = "\8\0\0\0\0\0\0\206"

describe("a session of a loop that has not looked for long", function()
  local peer, new_bytes

  before_each(function()
    new_bytes, core.bytes = core.bytes, core.loop -- luacheck: ignore
    peer = Peer.new()
    peer.now = core.now()
    peer:tick()
    peer.holder:handshake()
    peer.prober:handshake()
    peer.now = core.now() - 200 -- heartbeats are 60
    peer.session:feed("holder", HEARTBEAT)
    peer.session:feed("prober", HEARTBEAT)
    peer:tick()
  end)

  after_each(function() core.bytes = new_bytes end) -- luacheck: ignore

  it("reads what came meanwhile before it takes it for silence", function()
    peer.session:pump()
    assert.equal("open", peer.holder:state())
    assert.equal("open", peer.prober:state())
    peer.session:feed("holder", HEARTBEAT)
    peer.session:pump()
    peer.now = core.now() + 61
    peer:tick()
    assert.equal("open", peer.holder:state())
    assert.equal("down", peer.prober:state()) -- from which nothing has come
  end)
end)

it("a session that is told the time is none of a loop: nothing pumps it, or wants to know when to", function()
  local session = Peer.new().session
  for _, method in ipairs{ "pump", "wake" } do
    assert.error_matches(function() session[method](session) end, "not a session of a loop", nil, true)
  end
end)

it("a session with nothing to wait for wants no turn", function()
  local session = core.loop{}
  assert.is_nil(session:wake())
  assert.is_nil(session:pump())
end)
