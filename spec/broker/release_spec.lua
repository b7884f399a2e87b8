-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- `make release`, in a repository of its own: what it refuses, what it makes, that LuaRocks packs the result, and, in
-- `make soak`, builds and installs it, which takes a processor five seconds. (It needs no broker.)
local process = require "spec.support.process"
local version = require "spec.support.header".version()

local LUA = (os.getenv "LUA" or "lua5.4"):match "[^/]+$"
local SERIES = _VERSION:match "%d+%.%d+"
local TAG, ROCK = "v" .. version, "amqp-locks-" .. version .. "-1"
local TARBALL = "amqp-locks-" .. version .. ".tar.gz"

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

describe("make release", function()
  local place -- a directory with the repository, and where the tarball is downloaded from

  -- Runs a command in the repository, in an environment of its own. Returns whether it succeeded, and its output.
  local function try(command)
    return pcall(process.shell, "sh", "-c", ("cd %s && exec env -i PATH=\"$PATH\" HOME=%s sh -c %s 2>&1"):format(
      quote(place .. "/tree"), quote(place), quote(command)))
  end

  local function run(command)
    local fine, output = try(command)
    if not fine then error(command .. ":\n" .. output, 2) end
    return output
  end

  local function release(settings)
    return try(("make -s release VERSION=%s RELEASE_URL=file://%s/page/ %s"):format(version, place, settings or ""))
  end

  local COMMIT = "git add -A && git commit -q --allow-empty -m 'A commit'"

  -- Replaces a line of a file, by sed, and commits that.
  local function change(path, script)
    run(("sed -i %s %s && ! git diff --quiet && %s"):format(quote(script), path, COMMIT))
  end

  setup(function()
    place = process.directory()
    process.shell("mkdir", "-p", place .. "/tree/spec", place .. "/tree/docs", place .. "/tree/tools")
    process.shell("cp", "-R", "Makefile", "amqp-locks-scm-1.rockspec", "LICENSE", "CHANGELOG.md", ".gitignore", "lua",
      "src", "debian", place .. "/tree")
    process.shell("cp", "-R", "spec/support", place .. "/tree/spec")
    process.shell("cp", "-R", "docs/man", place .. "/tree/docs")
    process.shell("cp", "-R", "tools/release", "tools/release.mk", place .. "/tree/tools")
    run "git init -q && git config user.name Somebody && git config user.email somebody@example.org"
    run "git config commit.gpgSign false && git config tag.gpgSign false && git config core.autocrlf false"
    run(("sed -i '0,/^## /s/^## .*/## %s, 2026-12-01/' CHANGELOG.md"):format(version))
    run "sed -i '1s/UNRELEASED/unstable/' debian/changelog"
    run(COMMIT)
  end)
  teardown(function() process.shell("rm", "-rf", place) end)

  for _, row in ipairs { -- what is wrong, what is said, how it comes to be, further settings
    { "a changed file", "not committed:\n M LICENSE", function() run "echo >>LICENSE" end },
    { "a changelog that says unreleased, and asks for the date", 'write its date: "## [%d.]+, %d%d%d%d%-%d%d%-%d%d"',
      function() change("CHANGELOG.md", "0,/^## /s/^\\(## [^,]*\\).*/\\1, unreleased/") end },
    { "a changelog without a section of this version", 'is "## 9.9.9, 2026%-12%-01"',
      function() change("CHANGELOG.md", "0,/^## /s/^## [^,]*/## 9.9.9/") end },
    { "a date that there is not", "it should be ",
      function() change("CHANGELOG.md", "0,/^## /s/^\\(## [^,]*\\).*/\\1, 2026-13-41/") end },
    { "a Debian changelog that says unreleased", "UNRELEASED",
      function() change("debian/changelog", "1s/unstable/UNRELEASED/") end },
    { "a Debian changelog of another version", "begins with version %(9.9.9%-1%)",
      function() change("debian/changelog", "1s/(.*)/(9.9.9-1)/") end },
    { "a version that is not the source's", "AL_VERSION in src/amqplocks.h is 9.9.9",
      function() change("src/amqplocks.h", 's/\\(AL_VERSION "\\)[^"]*/\\19.9.9/') end },
    { "a rockspec that does not list the files that exist", "run make rockspec",
      function() change("amqp-locks-scm-1.rockspec", "/core\\/base\\/code_name.c/d") end },
    { "a release without a page", "RELEASE_URL=: ", function() end, "RELEASE_URL=" },
    { "a version that is none", "VERSION=1.0: ", function() end, "VERSION=1.0" },
  } do
    it("refuses " .. row[1] .. ", and leaves no tag", function()
      local before = run "git rev-parse HEAD && git tag --list"
      row[3]()
      local fine, output = release(row[4])
      run(("git reset -q --hard %s && git clean -qfd"):format(before:match "^%x+"))
      assert.is_false(fine)
      assert.matches(row[2], output)
      assert.equal(before, run "git rev-parse HEAD && git tag --list")
    end)
  end

  -- LuaRocks builds the module of the source rock, with the files that were in the tree.
  local function installs()
    run(("cd .. && luarocks --lua-version %s install --tree %s CFLAGS='-O0 -fPIC' %s.src.rock"):format(SERIES,
      quote(place .. "/rocks"), ROCK))
    local paths = run(("luarocks --lua-version %s --tree %s path"):format(SERIES, quote(place .. "/rocks")))
    local program = [[print(require "amqplocks"._VERSION)]]
    assert.equal(("amqplocks %s\n"):format(version), run(("%s\ncd / && %s -e %s"):format(paths, LUA, quote(program))))
    assert.equal(run "cd lua && find . -name '*.lua' | LC_ALL=C sort",
      run(("cd ../rocks/share/lua/%s && find . -name '*.lua' | LC_ALL=C sort"):format(SERIES)))
    -- In a program that is linked with the C library the module must not call the functions of that one.
    assert.equal("", run(("nm -D ../rocks/lib/lua/%s/amqplocks/core.so | grep -w al_op_drop || true"):format(SERIES)))
  end

  it("makes a tarball, a rockspec that names it, and the tag, of which LuaRocks makes a source rock", function()
    assert.is_true(release(), "release")
    assert.equal(run "git rev-parse HEAD", run(("git rev-parse %s^{commit}"):format(TAG)))
    assert.equal(run "git ls-files", run(("tar -tzf build/release/%s | sed 's|^[^/]*/||' | grep -v '/$' | sed /^$/d")
      :format(TARBALL)))
    run(("tools/release/archive build/again && cmp build/again build/release/%s"):format(TARBALL))
    local spec = run(("cat build/release/%s.rockspec"):format(ROCK))
    assert.matches(('\n  tag = "%s",\n'):format(TAG), spec, 1, true)
    assert.matches(('\n  homepage = "file://%s/page",\n  issues_url = "file://%s/page/issues",\n'):format(place, place),
      spec, 1, true)

    local from = ("../page/releases/download/%s"):format(TAG)
    run(("mkdir -p %s && cp build/release/%s %s"):format(from, TARBALL, from))
    run(("cd .. && luarocks --lua-version %s pack tree/build/release/%s.rockspec"):format(SERIES, ROCK))
    if os.getenv "AMQPLOCKS_SOAK" then installs() end

    local fine, output = release()
    assert.is_false(fine)
    assert.matches("there is a tag " .. TAG .. " already", output, 1, true)
  end)
end)
