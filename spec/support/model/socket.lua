-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- LuaSocket, as far as the raw client (client.lua) uses it, with the model broker at the other end of every socket and
-- in simulated time. Specs of a real broker's behaviour run unchanged against the model.
--
--     Socket.load("spec/broker/facts/claim_spec.lua", getfenv and getfenv() or _ENV, seed) -- inside a spec file
local Broker = require "spec.support.model.broker"
local World = require "spec.support.model.world"

local Socket = {}
Socket.__index = Socket

local function new_socket(module)
  return setmetatable({ module = module, received = "" }, Socket)
end

function Socket:connect()
  self.link = self.module.broker:connect(function (bytes) self.received = self.received .. bytes end,
    function () self.is_over = true end)
  return true
end

function Socket:send(bytes, from)
  if self.is_over then return nil, "closed", from - 1 end
  self.link:send(bytes:sub(from))
  return #bytes
end

function Socket:receive()
  local bytes = self.received
  self.received = ""
  return nil, bytes == "" and self.is_over and "closed" or "timeout", bytes
end

function Socket:close()
  if self.link then self.link:close() end
  self.link = nil
  return true
end

function Socket.settimeout() return true end
function Socket.setoption() return true end

local function is_readable(socket) return socket.received ~= "" or socket.is_over end

--- A module that replaces LuaSocket.
function Socket.module(broker)
  local module = { broker = broker }
  local world = broker.world
  function module.tcp() return new_socket(module) end
  function module.gettime() return world.now end
  function module.sleep(seconds) world:run(seconds) end
  function module.select(readers, writers, seconds)
    local ready = {}
    if writers then
      ready[writers[1]] = true
      return {}, ready
    end
    local reader = readers[1]
    ready[reader] = world:run(seconds, function () return is_readable(reader) end) or nil
    return ready, {}
  end
  return module
end

local BORROWED = { "socket", "spec.support.client", "spec.support.channel", "spec.support.until",
  "spec.support.process", "spec.support.broker", "spec.broker.facts.scene",
  "spec.broker.facts.fences", "spec.broker.facts.single_active" }

-- Calls fn(client) while every module that uses a socket is loaded again, with the model's sockets.
local function lend(broker, fn)
  local own = {}
  for _, name in ipairs(BORROWED) do own[name], package.loaded[name] = package.loaded[name], nil end
  package.loaded.socket = Socket.module(broker)
  local client = require "spec.support.client"
  local connect = client.connect
  function client.connect(_, options) return connect("amqp://guest:guest@model", options) end
  require("spec.support.broker").operated_it = function (_, pending) return pending end
  fn(client)
  for _, name in ipairs(BORROWED) do package.loaded[name] = own[name] end
  return client
end

--- A model broker, and the raw client whose connections all lead to it.
function Socket.broker(seed, laws)
  local broker = Broker.new(World.new(seed), laws)
  return broker, lend(broker, function () end)
end

--- Runs a spec file with the model in place of the broker. `environment` is that of the calling spec file; `laws` are
-- the broker's. Tests that need an operator are skipped.
function Socket.load(path, environment, seed, laws)
  environment = setmetatable({ pending = function () end }, { __index = environment })
  lend(Broker.new(World.new(seed), laws), function ()
    local chunk = assert(loadfile(path, "t", environment))
    if setfenv then setfenv(chunk, environment) end  -- Lua 5.1
    chunk()
  end)
end

return Socket
