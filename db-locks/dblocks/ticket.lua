-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Tickets tell the holder of a lock. A ticket is `name.16hex`: an operator sees the name, and no two are the same.
local ticket = {}

--- The most bytes that a name may have; with a dot and 16 digits 64.
ticket.NAME_MOST = 47

local STRANGE = "[^A-Za-z0-9_.+-]"

local function line_of(path)
  local file = io.open(path)
  local line = file and file:read "*l"
  if file then file:close() end
  return line
end

-- Lua itself knows neither host nor process. Linux tells both; elsewhere the option `name` does.
local function host_name() return line_of "/proc/sys/kernel/hostname" or os.getenv "HOSTNAME" or "host" end

--- The id of this process, as a text. It is asked each time, as this may be the child of a fork. "0": nothing tells it.
function ticket.process_id()
  local ngx = rawget(_G, "ngx")
  if ngx and ngx.worker and ngx.worker.pid then return tostring(ngx.worker.pid()) end
  return (line_of "/proc/self/stat" or "0"):match "^%d+"
end

local function program()
  local arg = rawget(_G, "arg")
  local script = type(arg) == "table" and type(arg[0]) == "string" and arg[0]:match "([^/\\]+)$"
  return script or (rawget(_G, "ngx") and "nginx") or "lua"
end

local named_process, process_name

--- The name of this process: "program@host:pid", of characters that tickets may have.
function ticket.name()
  local pid = ticket.process_id()
  if pid == named_process then return process_name end
  local room = ticket.NAME_MOST - #pid - 2
  local front = program():gsub(STRANGE, "-"):sub(1, 24)
  named_process = pid
  process_name = ("%s@%s:%s"):format(front, host_name():gsub(STRANGE, "-"):sub(1, room - #front), pid)
  return process_name
end

--- Returns `bytes` random bytes as hexadecimal digits; nil: this system has no source of them.
function ticket.random(bytes)
  local source = io.open("/dev/urandom", "rb")
  if not source then return nil end
  source:setvbuf "no"
  local drawn = source:read(bytes)
  source:close()
  if not drawn or #drawn < bytes then return nil end
  return ("%02x"):rep(bytes):format(drawn:byte(1, bytes))
end

--- A new ticket.
function ticket.new(name)
  local drawn = ticket.random(8)
  if not drawn then error("dblocks: /dev/urandom cannot be read: give each acquire a `ticket` of your own", 0) end
  return name .. "." .. drawn
end

return ticket
