-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What links of documents lead to, by the rules of GitHub.
local links = {}

--- The anchor of a heading. Of the characters beyond ASCII those from U+2000 to U+206F count as punctuation.
function links.anchor(heading)
  local text = heading:gsub("!?%[(.-)%]%b()", "%1"):gsub("\226[\128\129][\128-\191]", "")
  return (text:lower():gsub("[%z\1-\127]", function(char) return char:match "[%w _-]" or "" end):gsub(" ", "-"))
end

--- The path of a link's target, from the path of its document: "b.md" in "docs/a.md" is "docs/b.md".
function links.resolve(document, path)
  local whole, count = document:gsub("[^/]*$", "") .. path, 1
  while count > 0 do whole, count = whole:gsub("[^/]+/%.%./", "", 1) end
  return whole
end

return links
