-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What existed, and since when: for judging an answer to a request that was sent some time ago.
--
--     local history = History.new(broker)
--     history:was_absent("images-3-B", asked_at)          -- true if it was absent at any moment since then
--
-- It also records numbers: note() whenever one may have changed, was() to ask.
local History = {}
History.__index = History

function History.new(broker)
  local self = setmetatable({ broker = broker, world = broker.world, changed_at = {}, numbers = {} }, History)
  broker:on("changed", function (queue) self.changed_at[queue.name] = self.world.now end)
  return self
end

local function has_changed(self, name, since)
  return (self.changed_at[name] or -1) >= since
end

--- Whether the queue was absent at some moment since that time.
function History:was_absent(name, since)
  return not self.broker.queues[name] or has_changed(self, name, since)
end

--- Whether it was present at some moment since that time.
function History:was_present(name, since)
  return self.broker.queues[name] ~= nil or has_changed(self, name, since)
end

--- The number of this name is `number` from now on.
function History:note(name, number)
  local list = self.numbers[name] or {}
  self.numbers[name] = list
  if #list == 0 or list[#list].number ~= number then table.insert(list, { time = self.world.now, number = number }) end
end

--- Whether it was `number` at some moment since that time.
function History:was(name, number, since)
  local list = self.numbers[name] or {}
  for i = #list, 1, -1 do
    if list[i].number == number then return true end
    if list[i].time < since then return false end
  end
  return false
end

return History
