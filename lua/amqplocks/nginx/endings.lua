-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Calls functions at the end of a request, however it ends: its handler returned or failed, the client closed the
-- connection, or another phase took over. nginx notifies by a clean-up handler of the request. A coroutine of the
-- worker calls the functions a moment later.
local core = require "amqplocks.core"
local ffi = require "ffi"
local get_request = require("resty.core.base").get_request
local semaphore = require "ngx.semaphore"

local C = ffi.C

ffi.cdef [[
  struct amqplocks_ending;
  typedef struct {
    struct amqplocks_ending *first;
    int (*post)(void *semaphore, int n);
    void *semaphore;
  } amqplocks_endings;
  typedef struct amqplocks_ending {
    struct amqplocks_ending *next;
    amqplocks_endings *all;
    double number;
  } amqplocks_ending;

  typedef struct amqplocks_cleanup {
    void (*handler)(void *data);
    void *data;
    struct amqplocks_cleanup *next;
  } amqplocks_cleanup;
  amqplocks_cleanup *ngx_http_cleanup_add(void *request, size_t size);
]]

local new_endings, new_ending = ffi.typeof "amqplocks_endings", ffi.typeof "amqplocks_ending"
local note_end = ffi.cast("void (*)(void *)", core.note_end)

local endings = {}
endings.__index = endings

function endings.new()
  local called = assert(semaphore.new())
  local self = setmetatable({ _called = called, _expected = {}, _last = 0, count = 0 }, endings)
  local post = ffi.cast("int (*)(void *, int)", C.ngx_http_lua_ffi_sema_post)
  self._all = new_endings(nil, post, ffi.cast("void *", called.sem))
  return self
end

--- Returns the current request: comparable, and invalid once the request has ended.
endings.request = get_request

--- Registers fn(), to be called when the current request has ended.
function endings:expect(fn)
  local number = self._last + 1
  local ending = new_ending(nil, self._all, number)
  local cleanup = C.ngx_http_cleanup_add(get_request(), 0)
  if cleanup == nil then error("not enough memory", 0) end
  self._last = number
  self._expected[number] = { fn = fn, ending = ending } -- nginx has a pointer to `ending`, so it must stay alive
  self.count = self.count + 1
  cleanup.data = ending
  cleanup.handler = note_end
end

-- An error would be a defect. The functions of other requests must still be called.
local function attempt(fn)
  local fine, problem = pcall(fn)
  if not fine then ngx.log(ngx.ERR, "amqplocks: ", problem) end
end

--- Waits for the end of requests, at most so many seconds, and calls their functions.
function endings:wait(seconds)
  self._called:wait(seconds)
  local ending = self._all.first
  self._all.first = nil
  while ending ~= nil do
    local number = tonumber(ending.number)
    local expected = self._expected[number]
    ending = ending.next
    self._expected[number] = nil
    self.count = self.count - 1
    attempt(expected.fn)
  end
end

return endings
