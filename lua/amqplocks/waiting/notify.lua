-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Notifies the program of news of a connection: calls the log, and reports lost locks.
local news = {}

--- For an operation that the core may finish itself, so that its caller need not wait for it: returns the number of
-- events of locks after which nothing is left to be told. nil: something is, or the driver has to wait.
function news.settled(driver) return driver.finishes and driver.losses:settled() end

--- For a connection with listeners (conn:on_event).
function news.tell_events(driver)
  local events = driver.events
  events:look()
  events:tell(driver.log)
end

--- Called often, and mostly in vain: so a driver may have `is_quiet`, which tells cheaply that there is nothing new
-- since so many events of locks.
function news.tell(driver)
  local settled = driver.is_quiet and driver.losses:settled()
  if not settled or not driver.is_quiet(settled) then
    for level, message in driver.news do
      if driver.log then driver.log(level, message) end
    end
    driver.losses:tell()
  end
  if driver.listened then news.tell_events(driver) end
end

return news
