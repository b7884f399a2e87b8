-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What `make docs` makes: all pages, links that lead somewhere, and an index of all calls.
local annotations = require "spec.support.annotations"
local process = require "spec.support.process"

describe("make docs", function()
  if not pcall(process.shell, "cmark-gfm", "--version") then
    pending "there is no cmark-gfm"
    return
  end

  local pages = {}

  setup(function()
    local place = process.directory()
    process.shell(os.getenv "LUA" or "lua5.4", "tools/docs/main.lua", place)
    for name in process.shell("ls", place):gmatch "%S+" do pages[name] = process.contents(place .. "/" .. name) end
    process.shell("rm", "-r", place)
  end)

  -- That these texts are in the index. `least`: there are more of them than that.
  local function assert_indexed(texts, least)
    local missing = {}
    for _, text in ipairs(texts) do
      if not pages["index.html"]:find(text, 1, true) then table.insert(missing, text) end
    end
    assert.same({}, missing)
    assert.is_true(#texts > least, #texts)
  end

  it("makes a page of each document and manual page", function()
    local count = 0
    local paths = process.shell("sh", "-c", "ls docs/*.md docs/man/* README.md CHANGELOG.md CONTRIBUTING.md")
    for path in paths:gmatch "%S+" do
      count = count + 1
      assert.is_truthy(pages[path:match "[^/]+$":gsub("%.md$", "") .. ".html"], path)
    end
    assert.is_true(count > 25, count)
  end)

  it("makes links and pictures that lead to pages, anchors and files", function()
    local anchors, dead, count = {}, {}, 0
    for name, page in pairs(pages) do
      anchors[name] = {}
      for anchor in page:gmatch ' id="([^"]*)"' do
        if name:find "%.html$" then assert.is_nil(anchors[name][anchor], name .. " has two #" .. anchor) end
        anchors[name][anchor] = true
      end
    end
    for name, page in pairs(pages) do
      for attribute, target in page:gmatch ' (%l+)="([^"]*)"' do
        local path, anchor = target:match "^([^#]*)#?(.*)$"
        if path == "" then path = name end
        local is_link = attribute == "href" or attribute == "src" or attribute == "action"
        if is_link and name:find "%.html$" and not path:find "^https?:" then
          count = count + 1
          local is_there = anchors[path] and (anchor == "" or anchors[path][anchor])
          if not is_there then table.insert(dead, name .. ": " .. target) end
        end
      end
    end
    assert.same({}, dead)
    assert.is_true(count > 1000, count)
  end)

  it("has the methods, fields and options of the annotations in the index", function()
    local texts = {}
    for path in process.shell("find", "lua/amqplocks", "db-locks/dblocks", "-name", "*.lua"):gmatch "%S+" do
      for _, block in ipairs(annotations.read(process.contents(path))) do
        local fn = block.fn
        if fn and fn.is_method and fn.owner:find "^%u" and not fn.name:find "^_" then
          table.insert(texts, ("<code>%s:%s("):format(fn.owner, fn.name))
        end
        for _, field in ipairs(annotations.tags(block, "field")) do
          table.insert(texts, ("<code>%s.%s<"):format(block[1].name:match "%w+$", field.name))
        end
      end
    end
    assert_indexed(texts, 250)
    assert_indexed({ "<code>amqplocks.connect(", "<code>dblocks.sql(", "<code>testing.new(", "<code>metrics.new(" }, 3)
  end)

  it("has the functions of C, the options of the commands and the error codes in the index", function()
    local functions, options, codes = {}, {}, {}
    for name in process.contents("src/amqplocks.symbols"):gmatch "%S+" do
      table.insert(functions, ('<a href="amqplocks.3.html#%s"><code>'):format(name))
    end
    for _, command in ipairs{ "amqp-lock", "amqp-lock-admin" } do
      for rest in process.contents("docs/man/" .. command .. ".1"):gmatch "\n%.It Fl ([^\n]*)" do
        local option = "-" .. rest:match "%-[%l-]+"
        table.insert(options, rest:match "^%a , " and ("-%s, %s"):format(rest:sub(1, 1), option) or "<code>" .. option)
      end
    end
    for code in process.contents("src/core/base/code_name.c"):gmatch '%[AL_[%u_]+%] = "([%l_]+)"' do
      if code ~= "ok" then table.insert(codes, ('<a href="troubleshooting.html#%s"><code>%s<'):format(code, code)) end
    end
    assert_indexed(functions, 95)
    assert_indexed(options, 50)
    assert_indexed(codes, 20)
  end)
end)
