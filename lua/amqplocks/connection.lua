-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A connection to a broker. Locks live on it.
local admin = require "amqplocks.admin"
local all = require "amqplocks.all"
local await = require "amqplocks.waiting.await"
local close = require "amqplocks.waiting.close"
local core = require "amqplocks.core"
local elect = require "amqplocks.elect"
local events = require "amqplocks.waiting.events"
local fast_mutex = require "amqplocks.fast_mutex"
local guard = require "amqplocks.waiting.guard"
local methods = require "amqplocks.methods"
local mutex = require "amqplocks.mutex"
local news = require "amqplocks.waiting.notify"
local options = require "amqplocks.options"
local pcall = require("amqplocks.compat.pcall").pcall
local rwlock = require "amqplocks.rwlock"
local semaphore = require "amqplocks.semaphore"
local token_semaphore = require "amqplocks.token_semaphore"

---@alias amqplocks.OnLost fun(lock: amqplocks.Lock, code: "lost", message: string)

---@class amqplocks.Event
---@field what "acquired"|"failed"|"released"|"lost"|"revoked"|"waiting"|"up"|"down"|"blocked"|"unblocked"
---@field at number seconds since the epoch
---@field kind string|nil of the lock, as lock.kind when it was acquired; of "failed" and "waiting": of the lock wanted
---@field name string|nil of the lock; so are slot, ticket and fence
---@field slot integer|nil
---@field ticket string|nil
---@field fence integer|nil
---@field code string|nil of "failed": an amqplocks.Code, or "abandoned" (an error ended the acquire, or its coroutine
---  was closed); of "lost"; of "released", if the broker did not confirm it
---@field waited number|nil seconds that the acquire took, of "acquired" and "failed"
---@field in_line boolean|nil true if the acquire has waited for other holders: "waiting" came before
---@field held number|nil seconds that the lock was held, of "released" and "lost"
---@field link "holder"|"prober"|"quorum"|nil the connection, of "up", "down", "blocked" and "unblocked"

---@class amqplocks.Stats
---@field held integer locks that are held now
---@field waiting integer acquires that wait for other holders now
---@field acquired integer locks that were acquired
---@field retained integer of these, mutexes for which the broker was not asked, as they were retained
---@field failed { [string]: integer } acquires that failed, by amqplocks.Code; abandoned ones count as "closed"
---@field lost integer locks that were lost before their release
---@field revoked integer locks that an administrator has asked for
---@field contended integer claims that another client was faster with
---@field opened { holder: integer, prober: integer, quorum: integer } connections
---@field probes integer messages published: questions whether a queue exists, and tokens
---@field silence number|nil seconds since the broker was last heard; nil: no lock is held
---@field blocked boolean the broker has an alarm, and reads no publishers

---@class amqplocks.Connection
local Connection = {}
local metatable = { __index = Connection, __name = "amqplocks.connection" }

function metatable.__tostring(self)
  local state = self._closed and "closed" or self._session:state("holder")
  return ("amqplocks.connection (%s, %s)"):format(self._session:name(), state)
end

--- Releases every lock of this connection and closes it. Waits for the broker at most the connection's `timeout`;
-- and before that up to 20 s, after it has asked in vain for a mutex for clusters whose last holder's node is out of
-- reach.
-- Idempotent. Never raises an error.
---@return true
function Connection:close()
  if not self._closed then
    self._closed = true
    local driver = self._driver
    local close_its_own = driver.close or close
    close_its_own(driver, self._session)
    if driver.listened then
      driver.events:end_all()
      news.tell_events(driver)
    end
  end
  return true
end

function metatable.__close(self) self:close() end

--- Registers fn(lock, code, message). It is called once for every lock of this connection that is lost before its
-- release, with the code and message of lock:held().
--
-- fn is called only inside a call that may wait. For a lock that was lost between two calls this is the next one, also
-- if that is release, the end of `with` or of a block, or close. fn may call any function, also of this connection.
--
-- fn is not called again until it has returned, also while it yields. A loss that another coroutine finds meanwhile is
-- reported after that, and the release, `with` or close that has found it returns first.
--
-- An error in fn ends the call that called it; that call then leaves nothing held. The end of a block and close ignore
-- the error.
---@param fn? amqplocks.OnLost|false nil or false: losses are not reported
function Connection:on_lost(fn)
  if fn then options.argument(fn, options.checks.callable, "the callback", "on_lost") end
  self._driver.losses:on(fn or nil)
end

--- Adds a listener: fn(event) is called for each amqplocks.Event of this connection, where on_lost's function may be
-- called. Each "acquired" is followed by one "released" or "lost", also if the lock is collected, or the connection is
-- closed. Of a lock that was acquired before the first listener was added nothing is told. An error in fn goes to
-- `log`.
---@param fn fun(event: amqplocks.Event)
---@return fun() remove removes the listener
function Connection:on_event(fn)
  options.argument(fn, options.checks.callable, "the callback", "on_event")
  local driver = self._driver
  if not driver.listened then driver.losses:report_to(driver.events) end
  driver.listened = true
  return driver.events:add(fn)
end

--- Returns what has become of the acquires and locks of this connection so far; in nginx of those of its worker.
-- No I/O.
---@return amqplocks.Stats
function Connection:stats() return self._session:stats() end

--- Returns a descriptor for event loops, among them cqueues.poll. It becomes readable when a lock of this connection is
-- lost or revoked. The next call that may wait makes it unreadable again. Only poll it. Closing the connection closes
-- the descriptor, so remove it from the loop before that.
---@return integer|nil fd nil: the connection was closed, or this process is a child of the one that opened it
function Connection:pollfd() return self._session:pollfd() end

--- The events to poll the descriptor for.
---@return "r"
function Connection:events() return "r" end -- luacheck: no self

--- Returns in how many seconds the program must make a call that may wait.
---@return number|nil seconds nil: no call is needed, as the thread serves the connection, or it holds no locks
function Connection:timeout() return self._session:timeout() end

--- A semaphore that an administrator has created (docs/specification.md, 2). Does not ask the broker.
---@param name string up to 230 bytes of UTF-8, no control characters, not starting with "amq."
---@param opts? amqplocks.SemaphoreOptions
---@return amqplocks.Semaphore
function Connection:semaphore(name, opts) return semaphore.new(self, options.name(name, "semaphore"), opts) end

--- The administration of a semaphore (docs/specification.md, 8). Does not ask the broker.
---@param name string
---@param opts? amqplocks.AdminOptions defaults for each of its calls
---@return amqplocks.Admin
function Connection:admin(name, opts) return admin.new(self, options.name(name, "admin"), opts) end

--- A token semaphore: the messages of a queue are its permits. Does not ask the broker.
---@param name string as for conn:semaphore
---@param opts? amqplocks.TokenSemaphoreOptions
---@return amqplocks.TokenSemaphore
function Connection:token_semaphore(name, opts)
  return token_semaphore.new(self, options.name(name, "token_semaphore"), opts)
end

--- A mutex. Does not ask the broker.
---@param name string as for conn:semaphore
---@param opts? amqplocks.MutexOptions
---@return amqplocks.Mutex
function Connection:mutex(name, opts) return mutex.new(self, options.name(name, "mutex"), opts) end

--- A fast mutex: another kind of lock than conn:mutex, and another lock of the same name. Does not ask the broker.
---@param name string as for conn:semaphore
---@param opts? amqplocks.FastMutexOptions
---@return amqplocks.FastMutex
function Connection:fast_mutex(name, opts) return fast_mutex.new(self, options.name(name, "fast_mutex"), opts) end

--- A readers–writer lock. Does not ask the broker.
---@param name string as for conn:semaphore
---@param opts? amqplocks.RWLockOptions
---@return amqplocks.RWLock
function Connection:rwlock(name, opts) return rwlock.new(self, options.name(name, "rwlock"), opts) end

--- Calls fn(lock, …) while this client leads: while it holds the mutex `name`. It waits for that as long as it takes,
-- also while there is no broker. If the lock is lost, fn's results are dropped, and the client stands again once fn has
-- returned. So fn works while lock:held(). If fn returns while it leads, the election is over for this client.
--
--     conn:elect("reports", function(lock) while lock:held() do write_a_report() end end)
---@param name string as for conn:mutex
---@param ... any an optional table of amqplocks.ElectOptions, the function, and further arguments for it
---@return true|nil, any ... true and then fn's results; true alone after `stop`; after nil a message and a code that
---  waiting does not mend: "closed" (the connection), "refused", "auth", "squatted", …
function Connection:elect(name, ...) return elect.run(self, options.name(name, "elect"), ...) end

--- Several locks as one, which are acquired together or not at all. They may be of other connections, too. Does not ask
-- the broker.
--
--     local both = conn:all{ conn:mutex("ledger"), conn:rwlock("rates"):reader() }
--     assert(both:with({ timeout = 5 }, function(locks) print(locks:held()) end))
---@param list amqplocks.Lockable[]
---@return amqplocks.All
function Connection:all(list) return all.new(list) end -- luacheck: no self

methods.check(Connection, "conn")

local connection = {}

local function abort(self)
  local mind = self._driver.mind
  self._session:abort()
  if mind then pcall(mind) end
end

local function open_holder(self) return await(self._driver, nil, self._session.open, self._session) end

--- Opens a session's holder connection, unless it is shared: that is opened at its first use.
---@return amqplocks.Connection|nil, string? message, amqplocks.Code? code
function connection.open(session, driver)
  driver.clock = driver.clock or core
  driver.events = events.new(session, not driver.is_shared, driver.clock)
  local self = setmetatable({ _session = session, _driver = driver, _closed = false }, metatable)
  if driver.is_shared then return self end
  local opened, message, code = guard.unless_closed(abort, open_holder, self)
  if opened then return self end
  abort(self)
  return nil, message, code
end

return connection
