-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Throw-away nginx servers with the Lua module, on free loopback ports, and HTTP requests to them.
--
--     after_each(nginx.clear)
--     local server = nginx.start{ workers = 2, locations = { ["/hello"] = "ngx.say(ngx.var.arg_name)" } }
--     server:get("/hello?name=Bob")             --> 200, "Bob\n", headers
--     local request = server:begin("/hello")    -- does not wait for the answer
--     request:finish()                          -- waits, and returns the same three
--     request:abort()                           -- the client closes its connection
--     server:reload()                           -- HUP: new workers
--
-- A location's value is the Lua code of its handler, or a table: `content`, `access`, `log` and so on hold code, which
-- runs after the server's `prelude`; `more` holds other directives. `main` and `http` are directives for those parts of
-- the configuration; `listen` holds parameters of that directive. `sleeper` is a path whose handler may call
-- ngx.sleep(0), by a library that is not ours. In this code `amqplocks` is this checkout's module, for LuaJIT.
-- Instead of all these, `text` may be a function of the server (its `port`, its `directory`) that returns the whole
-- configuration.
local socket = require "socket"
local free_port = require "spec.support.servers.server".free_port
local process = require "spec.support.process"
local until_true = require "spec.support.until"

local nginx = {}
local server, request = {}, {}
server.__index, request.__index = server, request

local SECONDS = 60
local PHASES = { "set", "rewrite", "access", "content", "header_filter", "body_filter", "log" }
local running, requests = {}, {}

--- Sends a request and does not wait. HTTP/1.0: the end of the connection is the end of the answer.
function server:begin(path)
  local self_request = setmetatable({ socket = assert(socket.connect("127.0.0.1", self.port)), bytes = {} }, request)
  table.insert(requests, self_request)
  assert(self_request.socket:send(("GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n"):format(path)))
  self_request.socket:settimeout(0)
  return self_request
end

-- Reads what has arrived; true at the end of the answer.
local function take(self)
  while not self.over do
    local bytes, err, part = self.socket:receive(65536)
    table.insert(self.bytes, bytes or part)
    if err == "timeout" then return false end
    if err then self.over = err end
  end
  return true
end

--- Whether the answer is complete, or the connection was closed.
function request:finished() return take(self) end

--- Waits for the end of the answer: status, body, headers (names in lower case). Status nil: the connection was closed
-- without an answer.
function request:finish(seconds)
  until_true(function() return take(self), table.concat(self.bytes) end, seconds or SECONDS)
  self.socket:close()
  local answer = table.concat(self.bytes)
  local status, head, body = answer:match("^HTTP/%S+ (%d+)[^\r]*(.-)\r\n\r\n(.*)$")
  local headers = {}
  for name, value in (head or ""):gmatch("\r\n([^:]+): *([^\r]*)") do headers[name:lower()] = value end
  return tonumber(status), body or answer, headers
end

--- The client closes its connection and does not wait for the answer.
function request:abort() self.socket:close() end

--- Sends a request and waits for the answer: status, body, headers.
function server:get(path, seconds) return self:begin(path):finish(seconds) end

local function contents(path) return process.contents(path) or "" end -- the process may just have ended

-- Whether the recorded process still runs; a later process of the same number does not count.
local function alive(self, pid)
  return contents("/proc/" .. pid .. "/stat"):match("^.*%) (%a)") ~= "Z"
    and contents("/proc/" .. pid .. "/cmdline"):find("^nginx: ") ~= nil
    and (pid ~= self.pid or contents("/proc/" .. pid .. "/cmdline"):find(self.directory, 1, true) ~= nil)
end

function server:alive() return alive(self, self.pid) end

function server:signal(name, pid)
  pid = pid or self.pid
  if alive(self, pid) then os.execute(("kill -s %s %d"):format(name, pid)) end
end

-- The ids of its workers, or without those that are shutting down.
local function workers(self, are_new)
  local pids = {}
  for pid in contents(("/proc/%d/task/%d/children"):format(self.pid, self.pid)):gmatch("%d+") do
    local is_old = contents("/proc/" .. pid .. "/cmdline"):find("shutting down", 1, true)
    if alive(self, tonumber(pid)) and not (are_new and is_old) then table.insert(pids, tonumber(pid)) end
  end
  return pids
end

--- The ids of its workers, without workers that are shutting down.
function server:workers() return workers(self, true) end

--- Waits until a worker has ended.
function server:await_end(pid, seconds)
  until_true(function() return not alive(self, pid), self:errors() end, seconds or SECONDS)
end

-- Waits until the right number of workers serve, and none of the old ones.
local function await_workers(self, old)
  local is_old = {}
  for _, pid in ipairs(old) do is_old[pid] = true end
  until_true(function()
    local new = 0
    for _, pid in ipairs(self:workers()) do
      if is_old[pid] then return false, self:errors() end
      new = new + 1
    end
    return new >= self.number, self:errors()
  end, SECONDS)
end

--- SIGKILL for one worker, or for all. The master starts new ones; this waits until it has.
function server:kill_worker(...)
  local old = select("#", ...) > 0 and { ... } or self:workers()
  for _, pid in ipairs(old) do self:signal("KILL", pid) end
  await_workers(self, old)
end

--- SIGHUP: new workers replace the old ones, which finish their requests. Waits until only new ones are left; returns
-- the old ones.
function server:reload()
  local old = self:workers()
  self:signal("HUP")
  await_workers(self, old)
  return old
end

--- The contents of its error log.
function server:errors() return contents(self.directory .. "/error.log") end

-- The warning of nginx without OpenResty's patches when code calls ngx.sleep(0). No handler of the specs does.
local UNPATCHED = "without delayed events patch"

local function warning_of(self)
  local allowed = self.sleeper and ('request: "GET %s '):format(self.sleeper)
  for line in self:errors():gmatch("[^\n]*" .. UNPATCHED .. "[^\n]*") do
    if not (allowed and line:find(allowed, 1, true)) then return line end
  end
end

--- Stops it at once.
function server:stop()
  local pids, warning = workers(self), warning_of(self)
  self:signal("TERM")
  until_true(function() return not self:alive() end, SECONDS)
  for _, pid in ipairs(pids) do self:signal("KILL", pid) end -- a worker that hangs ignores its master
  process.shell("rm", "-rf", self.directory)
  if warning then error("ngx.sleep(0) was called: " .. warning, 0) end
end

local function location(path, what, prelude)
  if type(what) == "string" then what = { content = what } end
  local lines = { ("location %s {"):format(path), what.more or "" }
  for _, phase in ipairs(PHASES) do
    if what[phase] then
      local argument = phase == "set" and "$set " or ""
      table.insert(lines, ("%s_by_lua_block %s{\n%s\n%s\n}"):format(phase, argument, prelude, what[phase]))
    end
  end
  table.insert(lines, "}")
  return table.concat(lines, "\n")
end

local modules -- the directives that load the Lua module, if it is a dynamic module

local function load_modules()
  if modules then return modules end
  local directory = process.shell("sh", "-c", "PATH=$PATH:/usr/sbin nginx -V"):match("%-%-modules%-path=(%S+)")
  modules = ""
  for _, name in ipairs{ "ndk_http_module", "ngx_http_lua_module" } do
    local path = ("%s/%s.so"):format(directory or "", name)
    if io.open(path) then modules = modules .. ("load_module %s;\n"):format(path) end
  end
  return modules
end

local CONFIG = [[
$modules
daemon on;
$user
worker_processes $workers;
pid $directory/pid;
error_log $directory/error.log info;
$main
events { worker_connections 4096; }
http {
  access_log off;
  lua_package_path "$checkout/lua/?.lua;$checkout/lua/?/init.lua;$dblocks/?.lua;$dblocks/?/init.lua;;";
  lua_package_cpath "$checkout/build/luajit/?.so;;";
  client_body_temp_path $directory/body;
  proxy_temp_path $directory/proxy;
  fastcgi_temp_path $directory/fastcgi;
  uwsgi_temp_path $directory/uwsgi;
  scgi_temp_path $directory/scgi;
  $http
  server {
    listen 127.0.0.1:$port$listen;
    $locations
  }
}
]]

local function configuration(self, options)
  local locations = {}
  for path, what in pairs(options.locations or {}) do
    table.insert(locations, location(path, what, options.prelude or ""))
  end
  local checkout = process.shell("pwd"):match("%S+")
  local values = {
    modules = load_modules(), user = process.shell("id", "-u"):match("^0") and "user root;" or "",
    workers = tostring(self.number), directory = self.directory, checkout = checkout, dblocks = checkout .. "/db-locks",
    port = tostring(self.port), listen = options.listen and " " .. options.listen or "",
    main = options.main or "", http = options.http or "", locations = table.concat(locations, "\n"),
  }
  return (CONFIG:gsub("%$(%l+)", values):gsub("{PORT}", values.port))
end

-- Stops it when this process has ended, also by SIGKILL.
local function keep(self)
  process.shell("bash", "-c", process.LAUNCH, "launch", "sh", "-c", [[
    setsid sh -c 'tail -f /dev/null --pid="$1"
      pid=$(cat "$2/pid" 2>/dev/null) && grep -aq "$2" "/proc/$pid/cmdline" && kill -s TERM "$pid"
      rm -rf "$2"' keeper "$@" </dev/null >/dev/null 2>&1 &
  ]], "sh", tostring(process.id()), self.directory)
end

local function launch(self, options)
  process.write(self.directory .. "/nginx.conf", options.text and options.text(self) or configuration(self, options))
  return pcall(process.shell, "bash", "-c", process.LAUNCH, "launch", "sh", "-c", [[
    PATH=$PATH:/usr/sbin exec nginx -p "$1" -c "$1/nginx.conf" -e "$1/error.log" </dev/null]], "sh", self.directory)
end

--- Starts a server, and waits until it serves.
function nginx.start(options)
  local self = setmetatable({
    directory = process.directory(), number = options.workers or 1, sleeper = options.sleeper,
  }, server)
  keep(self)
  local started, problem
  for _ = 1, 5 do -- another process may take a port between our check and nginx's start
    self.port = free_port()
    started, problem = launch(self, options)
    if started or not tostring(problem):find("Address already in use", 1, true) then break end
  end
  if not started then error(problem, 2) end
  until_true(function()
    self.pid = tonumber(contents(self.directory .. "/pid"))
    return self.pid and #self:workers() >= self.number, self:errors()
  end, SECONDS)
  table.insert(running, self)
  return self
end

--- Stops all servers. Call this after each test.
function nginx.clear()
  local old_servers, old_requests = running, requests
  running, requests = {}, {}
  for _, old in ipairs(old_requests) do old.socket:close() end
  for _, old in ipairs(old_servers) do old:stop() end
end

return nginx
