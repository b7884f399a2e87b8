-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Links between the documents resolve, error codes have sections in docs/troubleshooting.md and citations of comments
-- in docs/specification.md, and permissions that are in two documents are the same in both.
local links = require "tools.docs.links"
local process = require "spec.support.process"

local read = process.contents

-- Without fenced blocks and comments, in which nothing is a link or a heading.
local function prose(text)
  return (("\n" .. text .. "\n"):gsub("\n *```.-\n *```+%f[\n]", "\n"):gsub("<!%-%-.-%-%->", ""))
end

local function anchors(text)
  local all = {}
  for heading in prose(text):gmatch "\n#+%s+([^\n]-)%s*%f[\n]" do all[links.anchor(heading)] = true end
  return all
end

local function targets(text)
  local all = {}
  local without_code = prose(text):gsub("(`+)(.-)%1", "")
  for target in without_code:gmatch "%]%(([^%s)]+)[^)]*%)" do all[#all + 1] = target end
  for target in without_code:gmatch "\n%[[^%]\n]+%]:%s*(%S+)" do all[#all + 1] = target end
  return all
end

-- Why a link of a document leads nowhere; nil: it does not.
local function trouble(document, text, link)
  if link:match "^%a[%w+.-]*:" then return nil end -- elsewhere
  local path, anchor = link:match "^([^#]*)#?(.*)$"
  local target = path == "" and document or links.resolve(document, path)
  local there, problem = read(target)
  if path == "" then there, problem = text, nil end
  if problem then return ("%s: there is no %s"):format(document, target) end
  if anchor == "" or not there then return nil end
  if target:match "%.md$" and anchors(there)[anchor] then return nil end
  return ("%s: %s has no heading #%s"):format(document, target, anchor)
end

describe("the documents", function()
  it("have links that lead to files and headings", function()
    local found, count = {}, 0
    local documents = process.shell("find", ".", "(", "-name", ".git", "-o", "-name", "build", ")", "-prune",
      "-o", "-name", "*.md", "-print")
    for document in documents:gmatch "%./([^\n]+)" do
      count = count + 1
      local text = read(document)
      for _, link in ipairs(text and targets(text) or {}) do table.insert(found, trouble(document, text, link)) end
    end
    assert.equal("", table.concat(found, "\n"))
    assert.is_true(count > 20)
  end)

  it("have the sections of docs/specification.md that comments cite", function()
    local sections, missing, count = {}, {}, 0
    for number in prose(read "docs/specification.md"):gmatch "\n#+ ([%d.]*%d)" do sections[number] = true end
    for path in process.shell("grep", "-rl", "docs/specification", "src", "lua"):gmatch "[^\n]+" do
      for words in read(path):gsub("\n[ *-]*", " "):gmatch "docs/specification(...........)" do
        count = count + 1
        if not sections[words:match "^%.md, ([%d.]*%d)"] then table.insert(missing, path .. words) end
      end
    end
    assert.same({}, missing)
    assert.is_true(count > 20)
  end)

  it("have a section for each error code", function()
    local headings, missing, count = anchors(read "docs/troubleshooting.md"), {}, 0
    for name in read("src/core/base/code_name.c"):gmatch '%[AL_[%u_]+%] = "([%l_]+)"' do
      count = count + 1
      if name ~= "ok" and not headings[name] then table.insert(missing, name) end
    end
    assert.is_true(count > 20)
    assert.same({}, missing)
  end)

  it("have in production.md permissions that the guide has", function()
    local known = {}
    local guide = read("docs/guide.md"):match "## Permissions\n.-\n```\n(.-)```"
    for configure, write, consume in guide:gmatch " +configure +(%S+)\n +write +(%S+)\n +read +(%S+)\n" do
      known[("'%s' '%s' '%s'"):format(configure, write, consume)] = true
    end
    assert.is_true(known[read("docs/production.md"):match "set_permissions %-p %S+ %S+ ('[^\n]*)"])
  end)
end)
