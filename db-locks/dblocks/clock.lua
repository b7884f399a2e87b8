-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- How to wait here: that of nginx, of cqueues or of LuaSocket, whichever runs. Times are in seconds. The clock
-- measures how long a wait takes; times that are stored come from the database's clock.
local clock = {}

local function optional(name)
  local fine, module = pcall(require, name)
  return fine and type(module) == "table" and module or nil
end

local function found()
  local ngx = rawget(_G, "ngx")
  if ngx and ngx.sleep then
    -- Less than a millisecond would be none, which nginx warns of.
    return function(seconds) ngx.sleep(math.max(seconds, 0.001)) end, function()
      ngx.update_time()
      return ngx.now()
    end
  end
  local cqueues = package.loaded.cqueues
  if type(cqueues) == "table" and cqueues.running() then return cqueues.sleep, cqueues.monotime end
  local socket = optional "socket"
  if socket then return socket.sleep, socket.gettime end
  cqueues = optional "cqueues"
  if cqueues then return cqueues.sleep, cqueues.monotime end
  return nil, os.time
end

--- Returns sleep(seconds) and now(). `sleep` is nil where nothing can wait. The caller's own go first.
function clock.find(sleep, now)
  local sleeps, tells = found()
  return sleep or sleeps, now or tells
end

--- pcall of a function that may yield. In Lua 5.1 other than LuaJIT that cannot be: an error is not caught there.
clock.protected = (_VERSION ~= "Lua 5.1" or rawget(_G, "jit")) and pcall or function(fn, ...) return true, fn(...) end

return clock
