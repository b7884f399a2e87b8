-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The throw-away brokers of spec/support/broker: the suite's own, and nodes for specs that need one to themselves.
--
--     local broker = require "spec.support.broker"
--     broker.suite:ctl("list_queues", "name")          -- rabbitmqctl
--     broker.suite:eval("1 + 1.")                       -- Erlang, in the node
--     local node = broker.start("channel_max = 10")     -- and node.url leads to it
--     node:stop() node:kill() node:restart()
--     node:remove()
local socket = require "socket"
local process = require "spec.support.process"
local until_true = require "spec.support.until"

local broker = {}
local node = {}
node.__index = node

local SCRIPT = "spec/support/broker"

local function read_env(directory)
  local env = {}
  for line in assert(io.lines(directory .. "/env")) do
    local name, value = line:match("^([%w_]+)=(.*)$")
    if name then env[name] = value end
  end
  return env
end

local function refresh(self)
  local env = read_env(self.directory)
  self.url, self.port = env.AMQP_URL, tonumber(env.BROKER_PORT)
  return self
end

local function script(self, command, ...) return process.shell(SCRIPT, command, self.directory, ...) end

-- Ends the node when this process has ended, however it did.
local function keep(self)
  process.shell("sh", "-c", [[
    setsid sh -c 'tail -f /dev/null --pid="$1"; "$2" stop "$3"; rm -rf "$3"' keeper "$@" </dev/null >/dev/null 2>&1 &
  ]], "sh", tostring(process.id()), SCRIPT, self.directory)
end

--- Starts a node of its own, with more lines for rabbitmq.conf, if any.
function broker.start(config)
  local self = setmetatable({ directory = process.shell("mktemp", "-d"):match("%S+") }, node)
  keep(self)
  process.shell("env", "BROKER_CONFIG=" .. (config or ""), SCRIPT, "start", self.directory)
  return refresh(self)
end

--- Ends it in good order.
function node:stop() script(self, "stop") end

--- SIGKILL. Returns when nobody listens any more: a process with many threads takes a moment to die.
function node:kill()
  script(self, "kill")
  until_true(function()
    local connection = socket.connect("127.0.0.1", self.port)
    if connection then connection:close() end
    return not connection
  end)
end

--- Starts it again, after a stop or a kill or without, with the same ports, data and settings.
function node:restart() script(self, "restart") end

--- rabbitmqctl; gives what it printed.
function node:ctl(...) return script(self, "ctl", "--quiet", ...) end

--- Runs Erlang in the node; gives the value it printed.
function node:eval(erlang) return (self:ctl("eval", erlang):match("^(.-)%s*$")) end

-- What an operator does takes half a second by rabbitmqctl, so each of these is one call of it.

-- Erlang with $1, $2, … replaced by binaries of these strings.
local function filled(erlang, ...)
  local strings = { ... }
  return (erlang:gsub("%$(%d)", function(i)
    return "<<" .. strings[tonumber(i)]:gsub(".", function(char) return char:byte() .. "," end):sub(1, -2) .. ">>"
  end))
end

local function demand(self, erlang, ...)
  local answer = self:eval(filled(erlang, ...))
  if answer:sub(1, 2) ~= "ok" and answer:sub(1, 4) ~= "{ok," then error(answer, 3) end
end

local LOOKUP = '{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, $1)), '

--- Deletes any queue, also one that is exclusive to a connection, which no client but its own could.
function node:delete_queue(name)
  demand(self, LOOKUP .. 'rabbit_amqqueue:delete(Q, false, false, <<"the operator">>).', name)
end

--- Has the broker close the channel on which a queue is consumed, with an error: as if the client had asked there for a
-- queue that does not exist.
function node:close_channel(name)
  demand(self, LOOKUP .. "[C | _] = rabbit_amqqueue:consumers(Q), rabbit_channel:do(element(1, C), "
    .. '{\'queue.declare\', 0, <<"none">>, true, false, false, false, false, []}).', name)
end

--- Closes the connection of this name.
function node:close_connection(name)
  demand(self, [[
    [Pid] = [Pid || [{pid, Pid}, {client_properties, All}]
      <- rabbit_networking:connection_info_all([pid, client_properties]),
      lists:keyfind(<<"connection_name">>, 1, All) =:= {<<"connection_name">>, longstr, $1}],
    rabbit_networking:close_connection(Pid, "the operator wants it").
  ]], name)
end

local PERMIT = 'ok = rabbit_auth_backend_internal:set_permissions($1, <<"/">>, $2, $3, $4, <<"the operator">>)'

--- Adds a user with these permissions (regular expressions); gives the node's URL for it.
function node:add_user(name, configure, write, read)
  demand(self, 'ok = rabbit_auth_backend_internal:add_user($1, <<"password">>, <<"the operator">>), ' .. PERMIT .. ".",
    name, configure, write, read)
  return (self.url:gsub("//.-@", "//" .. name .. ":password@"))
end

--- Changes what a user may do. A channel keeps what it has looked up until it rests: with a queue given, this waits
-- until the channel that consumes it does.
function node:permit(name, configure, write, read, queue)
  demand(self, PERMIT .. (queue and ", " .. LOOKUP:gsub("%$1", "$5") .. [[
    [C | _] = rabbit_amqqueue:consumers(Q),
    Rest = fun(Rest) -> case process_info(element(1, C), current_function) of
      {_, {erlang, hibernate, _}} -> ok;
      _ -> timer:sleep(10), Rest(Rest)
    end end,
    Rest(Rest).]] or "."), name, configure, write, read, queue)
end

--- Deletes a user, and with it its connections.
function node:delete_user(name)
  demand(self, 'rabbit_auth_backend_internal:delete_user($1, <<"the operator">>).', name)
end

--- Stops it and removes all it had.
function node:remove()
  self:stop()
  process.shell("rm", "-rf", self.directory)
end

local suites = os.getenv "BROKER_DIR"

--- The suite's own node; nil when the suite was given a broker from elsewhere, which has no operator.
broker.suite = suites and refresh(setmetatable({ directory = suites }, node))

--- `it`, for tests that need an operator.
function broker.operated_it(it, pending) return suites and it or pending end

return broker
