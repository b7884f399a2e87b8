-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Notifies the program of news of a connection: calls the log, and reports lost locks.
local news = {}

function news.tell(driver)
  for level, message in driver.news do
    if driver.log then driver.log(level, message) end
  end
  driver.losses:tell()
end

return news
