-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The static commands of `make cli STATIC=1 LIBC=musl` where there is nothing but they, and the image of `make image`,
-- as the programs of others read it. Run by `make check-musl`.
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local values = require "spec.support.programs.values"

-- In a user namespace, an ordinary user may change the root directory.
local ENTER = process.shell("id", "-u") == "0\n" and { "chroot" } or { "unshare", "-r", "chroot" }
local SECONDS = 60
local root

local function within(call, how, ...)
  how.program = "env"
  local words = { values.unpack(ENTER) }
  for _, word in ipairs { root, ... } do table.insert(words, word) end
  return call(how, values.unpack(words))
end
local function start(...) return within(command.start, { input = true }, "/amqp-lock", ...) end
local function ends(status, env, ...)
  return within(function(how, ...) return command.ends(how, status, ...) end, { env = env }, ...)
end

local function free(name) return not gate.held("mutex", name) end

stage.tidy(command.clear)

before_each(function()
  root = command.place() .. "/root"
  process.shell("mkdir", root)
end)

describe("amqp-lock, in an empty root directory,", function()
  before_each(function() process.shell("cp", command.DIRECTORY .. "/amqp-lock", root) end)

  it("holds a lock, and runs a command while it does", function()
    local name = gate.name()
    local one = start("--hold", "--held-file", "/held", name)
    local ticket = one:await "held (%x+)\n"
    assert.equal(ticket .. "\n", process.contents(root .. "/held"))
    assert.is_false(free(name))
    assert.matches("busy", ends(75, {}, "/amqp-lock", "-n", name, "/amqp-lock", "--version"))
    one:ends_with_input(0)
    assert.is_nil((process.contents(root .. "/held")))
    assert.matches("^amqp%-lock %d[^\n]*\n$", ends(0, {}, "/amqp-lock", "-w", "10", name, "/amqp-lock", "--version"))
    assert.is_true(free(name))
  end)

  it("has a guard that ends the command when it is killed", function()
    local name, other = gate.name(), gate.name()
    local one = start("--held-file", "/held", name, "/amqp-lock", "--hold", other)
    one:await "held (%x+)\n"
    assert.is_false(free(name) or free(other))
    one:signal "KILL"
    until_true(function() return free(name) and free(other) end, SECONDS)
    until_true(function() return not process.contents(root .. "/held") end, SECONDS)
  end)

  it("finds names in /etc/hosts, and certificates where systems have them", function()
    local ca, etc = os.getenv "BROKER_TLS" .. "/ca.pem", root .. "/etc"
    local function ends_with(status, url, words)
      local env = { AMQP_URL = url, SSL_CERT_FILE = false, SSL_CERT_DIR = false }
      assert.matches(words, ends(status, env, "/amqp-lock", gate.name(), "/amqp-lock", "--version"))
    end
    local url = os.getenv "AMQPS_URL"
    ends_with(69, (url:gsub("localhost", "no-such-host.invalid")), "no%-such%-host%.invalid")
    process.shell("mkdir", "-p", etc .. "/ssl/certs")
    process.write(etc .. "/hosts", "127.0.0.1 localhost broker.test\n")
    ends_with(78, url, "certificate")
    process.shell("cp", ca, etc .. "/ssl/cert.pem")
    ends_with(0, url, "^amqp%-lock %d")
    ends_with(78, (url:gsub("localhost", "broker.test")), "broker%.test")
    process.shell("rm", etc .. "/ssl/cert.pem")
    process.shell("cp", ca, etc .. "/ssl/certs")
    process.shell("openssl", "rehash", etc .. "/ssl/certs")
    ends_with(0, url, "^amqp%-lock %d")
    ends_with(77, (url:gsub(":guest@", ":wrong@")), "auth")
  end)
end)

describe("the image", function()
  local version = process.shell(command.DIRECTORY .. "/amqp-lock", "--version"):match "(%S+)\n$"
  local image = ("build/image/amqp-lock-%s.tar"):format(version)

  it("is read by skopeo, and runs as umoci unpacks it", function()
    local read = process.shell("skopeo", "inspect", ("oci-archive:%s:%s"):format(image, version))
    for label, value in pairs { version = version, licenses = "MIT AND ", revision = process.shell("git", "rev-parse",
      "HEAD"):match "%x+" } do
      assert.matches(('"org.opencontainers.image.%s": "%s'):format(label, value), read, 1, true)
    end
    assert.matches(({ x86_64 = '"Architecture": "amd64"', aarch64 = '"Architecture": "arm64"' })[
      process.shell("uname", "-m"):match "%S+"] or "Architecture", read, 1, true)
    local place = command.place()
    process.shell("sh", "-ec", [[mkdir "$1/layout" && tar -C "$1/layout" -xf "$2"
      umoci unpack --rootless --image "$1/layout:$3" "$1/bundle" >/dev/null 2>&1]], "sh", place, image, version)
    root = place .. "/bundle/rootfs"
    local entry = process.contents(place .. "/bundle/config.json"):match '"args": %[%s*"([^"]+)"%s*%]'
    local name = gate.name()
    assert.equal(("amqp-lock-admin %s\n"):format(version), ends(0, {}, entry, name, "amqp-lock-admin", "--version"))
    assert.matches("BEGIN CERTIFICATE", process.contents(root .. "/etc/ssl/cert.pem"))
    assert.is_true(free(name))
  end)

  it("has the same bytes when it is made anew", function()
    local again = command.place() .. "/again.tar"
    process.shell("tools/release/image", version, command.DIRECTORY, "build/musl", again)
    process.shell("cmp", image, again)
  end)
end)
