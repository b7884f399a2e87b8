-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What people are told of a connection without asking: the log, and the locks that were lost.
local news = {}

function news.tell(driver)
  for level, message in driver.news do
    if driver.log then driver.log(level, message) end
  end
  driver.losses:tell()
end

return news
