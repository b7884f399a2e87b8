-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The throw-away brokers of spec/support/broker: the suite's own node, and nodes for specs that need one to
-- themselves.
--
--     local broker = require "spec.support.broker"
--     broker.suite:ctl("list_queues", "name")           -- rabbitmqctl
--     broker.suite:delete_queue("held by anybody")      -- and other actions of an operator
--     broker.suite:restart()                            -- each worker of the suite has a node of its own
--     local node = broker.start("channel_max = 10")     -- one more node, which takes five seconds of a processor
--     node:stop() node:kill() node:restart()
--     node:remove()
local socket = require "socket"
local process = require "spec.support.process"
local until_true = require "spec.support.until"
local values = require "spec.support.programs.values"

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
  self.url, self.host, self.port = env.AMQP_URL, env.BROKER_HOST, tonumber(env.BROKER_PORT)
  self.api = ("http://guest:guest@127.0.0.1:%s/api"):format(env.BROKER_MANAGEMENT_PORT or "")
  return self
end

local function script(self, command, ...) return process.shell(SCRIPT, command, self.directory, ...) end

-- Removes the node when this process has ended, also by SIGKILL.
local function keep(self)
  process.shell("sh", "-c", [[
    setsid sh -c 'tail -f /dev/null --pid="$1"; exec "$2" remove "$3"' keeper "$@" </dev/null >/dev/null 2>&1 &
  ]], "sh", tostring(process.id()), SCRIPT, self.directory)
end

--- Starts a node of its own. `config`: more lines for rabbitmq.conf.
function broker.start(config)
  local self = setmetatable({ directory = process.directory() }, node)
  keep(self)
  process.shell("env", "BROKER_CONFIG=" .. (config or ""), SCRIPT, "start", self.directory)
  return refresh(self)
end

--- Stops RabbitMQ cleanly, within its Erlang node if that answers, as rabbitmqctl stop_app does: clients see the same,
-- and restart() takes a second then, not seven.
function node:stop()
  if not pcall(self.tell, self, "ok = rabbit:stop(), ok.") then script(self, "stop") end
end

--- SIGKILL. Returns when its port is closed: a process with many threads takes a moment to die.
function node:kill()
  script(self, "kill")
  until_true(function()
    local connection = socket.connect(self.host, self.port)
    if connection then connection:close() end
    return not connection
  end)
end

--- Starts it again with the same ports, data and settings, after a stop or a kill, or while it runs.
function node:restart() script(self, "restart") end

--- SIGSTOP, and SIGCONT.
function node:freeze() process.shell("kill", "-s", "STOP", read_env(self.directory).BROKER_PID) end
function node:thaw() process.shell("kill", "-s", "CONT", read_env(self.directory).BROKER_PID) end

--- Runs rabbitmqctl; returns its output.
function node:ctl(...) return script(self, "ctl", "--quiet", ...) end

--- Runs a list command of rabbitmqctl; returns the row that has this name in its first column. Retries if there is no
-- such row: on a busy machine a list may be incomplete.
function node:row(name, ...)
  local arguments = { ... }
  return until_true(function ()
    for row in self:ctl(values.unpack(arguments)):gmatch "[^\n]+" do
      if row:match "^[^\t]*" == name then return row end
    end
    return nil, "no row for " .. name
  end, 60)
end

local has_erl_call

-- Evaluates Erlang in the node; returns the value as printed. erl_call, which comes with Erlang, takes four
-- milliseconds. rabbitmqctl takes half a second, or half a minute on a busy machine.
local function evaluate(self, erlang)
  if has_erl_call == nil then has_erl_call = pcall(process.shell, "sh", "-c", "command -v erl_call") end
  if not has_erl_call then return (self:ctl("eval", erlang):match("^%s*(.-)%s*$")) end
  local env = read_env(self.directory)
  -- On a busy machine erl_call may time out before the node evaluated anything. Then it is safe to retry.
  local answer = process.shell("sh", "-c", [[
    for pause in 1 2 4 0; do
      printf '%s\n' "$1" | HOME=$2 ERL_EPMD_PORT=$3 erl_call -e -n "$4" -timeout 60 2>"$2/erl_call" && exit
      grep -q 'failed to connect' "$2/erl_call" && [ $pause -gt 0 ] || break
      sleep $pause
    done
    cat "$2/erl_call" >&2
    exit 1
  ]], "sh", erlang, self.directory, env.BROKER_EPMD_PORT, env.BROKER_NODE)
  return answer:match("^{ok, (.*)}%s*$") or answer
end

-- Replaces $1, $2, … in Erlang code by binaries of the given strings.
local function filled(erlang, ...)
  local strings = { ... }
  return (erlang:gsub("%$(%d)", function(i)
    return "<<" .. strings[tonumber(i)]:gsub(".", function(char) return char:byte() .. "," end):sub(1, -2) .. ">>"
  end))
end

--- Evaluates Erlang in the node; returns the value as printed. $1, $2, … as for tell.
function node:ask(erlang, ...) return evaluate(self, filled(erlang, ...)) end

--- Evaluates an Erlang expression that gives a list of strings without spaces; returns them. $1, $2, … stand for
-- binaries of the given strings. Throws the output if it is no such list.
function node:strings(list, ...)
  local words = {}
  local text = self:ask('binary_to_list(iolist_to_binary(lists:join(" ", ' .. list .. "))).", ...)
  if text == "[]" then return words end
  for word in (text:match '^"(.*)"$' or error(text, 2)):gmatch "%S+" do table.insert(words, word) end
  return words
end

--- Evaluates Erlang in the node, which must return ok. $1, $2, … stand for binaries of the given strings.
function node:tell(erlang, ...)
  local answer = evaluate(self, filled(erlang, ...))
  if answer ~= "ok" then error(answer, 2) end
end

--- The beginning of Erlang for ask() and the others: Q is the queue named $1.
broker.LOOKUP = '{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, $1)), '
local LOOKUP = broker.LOOKUP

local CONNECTION = [[
  [Pid] = [Pid || [{pid, Pid}, {client_properties, All}]
    <- rabbit_networking:connection_info_all([pid, client_properties]),
    lists:keyfind(<<"connection_name">>, 1, All) =:= {<<"connection_name">>, longstr, $1}],
]]

-- The queues whose names begin with $1, without bolts. A bolt is a queue that guards a lock's queue against RabbitMQ
-- before 4.3; it expires by itself.
local NAMES = "[N || {_, _, _, N} <- rabbit_amqqueue:list_names(), string:prefix(N, $1) =/= nomatch, "
  .. 'string:find(N, "-bolt", trailing) =/= <<"-bolt">>]'

--- What an operator does: methods, such as node:delete_queue(name). Their arguments are $1, $2, …
local ACTS = {
  -- A queue, by its name. `delete_queue`: any, also one that is exclusive to a connection, which no other client can
  -- delete. `rob_queue`: removes its record and nothing else, as RabbitMQ before 4.3 does when another queue of the
  -- same name ends. `suspend_queue`: it stops answering, like a queue whose node was just killed.
  delete_queue = LOOKUP .. '{ok, _} = rabbit_amqqueue:delete(Q, false, false, <<"the operator">>), ok.',
  rob_queue = LOOKUP .. "Which = case erlang:function_exported(rabbit_db_queue, delete, 2) of "
    .. 'true -> Q; false -> amqqueue:get_name(Q) end, _ = rabbit_amqqueue:internal_delete(Which, <<"operator">>), ok.',
  suspend_queue = LOOKUP .. "ok = sys:suspend(amqqueue:get_pid(Q)), ok.",
  resume_queue = LOOKUP .. "ok = sys:resume(amqqueue:get_pid(Q)), ok.",
  -- The broker closes the channel on which the queue is consumed, with an error, as if the client had named a queue
  -- there that does not exist.
  close_channel = LOOKUP .. "[C | _] = rabbit_amqqueue:consumers(Q), gen_server:cast(element(1, C), "
    .. '{method, {\'queue.declare\', 0, <<"none">>, true, false, false, false, false, []}, none, noflow}).',
  -- Throws if a queue other than a bolt has a name that begins so.
  assert_none = "Left = " .. NAMES .. ", [] = Left, ok.",

  -- A connection, by its name, of which there must be one.
  assert_connected = CONNECTION .. "true = is_pid(Pid), ok.",
  close_connection = CONNECTION .. 'rabbit_networking:close_connection(Pid, "the operator wants it").',

  -- A user, by its name. `delete_user` closes the user's connections; so does `close_connections_of`, with a reason.
  delete_user = 'rabbit_auth_backend_internal:delete_user($1, <<"the operator">>).',
  change_password = 'rabbit_auth_backend_internal:change_password($1, $2, <<"the operator">>).',
  -- A client may end one of them meanwhile.
  close_connections_of = "[catch rabbit_networking:close_connection(C, $2) || C <- rabbit_networking:connections(), "
    .. "[{user, $1}] =:= (catch rabbit_networking:connection_info(C, [user]))], ok.",

  -- A virtual host; a policy there; the cluster's name, which clients see.
  delete_vhost = 'rabbit_vhost:delete($1, <<"the operator">>), ok.',
  clear_policy = 'rabbit_policy:delete($1, $2, <<"the operator">>).',
  name_cluster = 'rabbit_nodes:set_cluster_name($1, <<"the operator">>).',
}
for name, erlang in pairs(ACTS) do
  node[name] = function(self, ...) self:tell(erlang, ...) end
end

local PERMIT = 'ok = rabbit_auth_backend_internal:set_permissions($1, $5, $2, $3, $4, <<"the operator">>)'

--- Adds a user, with the password "password" and these permissions (regular expressions) in "/" or another virtual
-- host, or without permissions. Returns the node's URL for that user.
function node:add_user(name, configure, write, read, vhost)
  local add = 'ok = rabbit_auth_backend_internal:add_user($1, <<"password">>, <<"the operator">>)'
  self:tell(add .. (configure and ", " .. PERMIT or "") .. ".", name, configure, write, read, vhost or "/")
  return (self.url:gsub("//.-@", "//" .. name .. ":password@"))
end

--- Changes the permissions of a user. A channel caches permissions until it hibernates: with a queue given, this waits
-- until the channel that consumes the queue does.
function node:permit(name, configure, write, read, queue)
  self:tell(PERMIT .. (queue and ", " .. LOOKUP:gsub("%$1", "$6") .. [[
    [C | _] = rabbit_amqqueue:consumers(Q),
    Rest = fun(Rest) -> case process_info(element(1, C), current_function) of
      {_, {erlang, hibernate, _}} -> ok;
      _ -> timer:sleep(10), Rest(Rest)
    end end,
    Rest(Rest).]] or "."), name, configure, write, read, "/", queue)
end

--- Limits for how long a consumer may keep a message, of channels that are opened from now on (on 4.3, of consumers
-- that begin from now on), and has the broker look for those who do all the time. Without a number: as it was.
function node:limit_consumers(milliseconds)
  self:tell(("application:set_env(rabbit, consumer_timeout, %d), "
    .. "application:set_env(rabbit, channel_tick_interval, %d), ok."):format(milliseconds or 1800000,
    milliseconds and 50 or 60000))
end

--- Adds a virtual host that the guest user may use; returns its URL. `most`: { connections = n } or { queues = n }.
-- `queue_type`: the default queue type of the virtual host.
function node:add_vhost(name, most, queue_type)
  local what, limit = next(most)
  if queue_type then self:ctl("add_vhost", name, "--default-queue-type", queue_type) end
  self:tell('rabbit_vhost:add($1, <<"the operator">>), ok = rabbit_auth_backend_internal:set_permissions('
    .. '<<"guest">>, $1, <<".*">>, <<".*">>, <<".*">>, <<"the operator">>), '
    .. 'rabbit_vhost_limit:parse_set($1, $2, <<"the operator">>).', name,
    ('{"max-%s": %d}'):format(what, limit))
  return self.url .. "/" .. name
end

-- The alarm is set directly. A low disk limit would have no effect where the disk is measured seldom, or cannot be.
local ALARMS = {
  memory = { "vm_memory_monitor:set_vm_memory_high_watermark(0), ok.",
    "vm_memory_monitor:set_vm_memory_high_watermark(0.4), ok." },
  disk = { "rabbit_alarm:set_alarm({{resource_limit, disk, node()}, []}), ok.",
    "rabbit_alarm:clear_alarm({resource_limit, disk, node()}), ok." },
}

--- Sets or clears the alarm about a resource ("memory" by default).
function node:alarm(on, resource) self:tell(ALARMS[resource or "memory"][on and 1 or 2]) end

--- The names of the queues that begin with `prefix`, without bolts. The names hold no spaces.
function node:queues(prefix) return self:strings(NAMES, prefix) end

--- The consumer tags of a queue.
function node:consumer_tags(queue)
  return self:strings("begin " .. LOOKUP .. "[element(2, C) || C <- rabbit_amqqueue:consumers(Q)] end", queue)
end

--- Applies a policy to the queues whose names match a pattern, or to `what` instead of queues; `definition` is JSON.
-- `clear_policy` removes it. Both return before the policy has reached the queues.
function node:set_policy(vhost, name, pattern, definition, what)
  self:tell('rabbit_policy:parse_set($1, $2, $3, $4, 0, $5, <<"the operator">>).', vhost, name, pattern, definition,
    what or "queues")
end

--- SIGKILL, and removes its directory.
function node:remove() script(self, "remove") end

local suites = os.getenv "BROKER_DIR"

--- A node that exists already, by its directory.
function broker.open(directory) return refresh(setmetatable({ directory = directory }, node)) end

--- The suite's own node; nil if the suite was given the URL of another broker, on which the specs are no operator.
broker.suite = suites and broker.open(suites)

--- `it`, for tests that need operator access to the broker.
function broker.operated_it(it, pending) return suites and it or pending end

return broker
