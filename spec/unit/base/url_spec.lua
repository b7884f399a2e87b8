-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"
local core = require "amqplocks.core"

-- What a session over `url` says to the broker: user, password, virtual host.
local function shown(url)
  local peer = Peer.new({ url = url })
  peer.holder:attach()
  peer.holder:expect("protocol header")
  peer.holder:send(peer.holder.start())
  local user, password = peer.holder:expect("connection.start-ok").response:match("^%z(%Z*)%z(%Z*)$")
  peer.holder:send{ channel = 0, method = "connection.tune", frame_max = 131072 }
  peer.holder:expect("connection.tune-ok")
  return { user, password, peer.holder:expect("connection.open").virtual_host }
end

describe("a URL", function ()
  local good = {
    -- from RabbitMQ's URI specification, its table of examples
    ["amqp://user:pass@host:10000/vhost"] = { "user", "pass", "vhost" },
    ["amqp://user%61:%61pass@ho%61st:10000/v%2fhost"] = { "usera", "apass", "v/host" },
    ["amqp://host"] = { "guest", "guest", "/" },
    ["amqp:///vhost"] = { "guest", "guest", "vhost" },
    ["amqp://host/"] = { "guest", "guest", "" },
    ["amqp://host/%2F%4A%5a"] = { "guest", "guest", "/JZ" },
    ["amqp://"] = { "guest", "guest", "/" },
    ["amqps://user@host/vhost"] = { "user", "guest", "vhost" },
    ["amqp://[2001:db8::7]:5673/vhost"] = { "guest", "guest", "vhost" },
    ["amqp://user:p%40ss%3a%2f%3f%23@host?heartbeat=5"] = { "user", "p@ss:/?#", "/" },
    ["amqp://%c3%bc:p%C3%A4,ss@host"] = { "ü", "pä,ss", "/" },
    ["AMQP://host"] = { "guest", "guest", "/" }, -- RFC 3986, 3.1
    ["amqp://host\n"] = { "guest", "guest", "/" }, -- as it is read from a file
    ["\t amqp://user:pass@a,b/vhost \n\n"] = { "user", "pass", "vhost" },
    ["amqp://user:pass@a,b:5673,[::1]:5674/vhost"] = { "user", "pass", "vhost" },
  }
  it("is user, password and virtual host; left out, guest's on the default one", function ()
    for url, expected in pairs(good) do
      assert.is_nil(core.url_error(url))
      assert.same(expected, shown(url), url)
    end
    assert.same({ "guest", "guest", "/" }, shown(nil))
  end)

  it("says whether there is TLS", function ()
    for scheme, is_tls in pairs{ amqp = false, amqps = true, AmqpS = true } do
      assert.equal(is_tls, Peer.new({ url = scheme .. "://host" }).session:is_tls())
    end
  end)

  local bad = {
    ["the URL is empty"] = { "", " \r\n" },
    ["the URL does not begin with amqp:// or amqps://"] = { "host", "http://host", "amqp:/host", "amqp ://host",
      "amqpss://host" },
    ['the user or the password in the URL holds an "@": write it as %40'] = { "amqp://user:pa@ss@host" },
    ['the URL has an "@" behind its first "/": in a password write "/" as %2F'] = { "amqp://user:pa/ss@host" },
    ['the URL has an "@" behind its first "?": in a password write "?" as %3F'] = { "amqp://user:pa?ss@host" },
    ['in a virtual host "@" as %40'] = { "amqp://host/v@host" },
    ['the password in the URL holds a ":": write it as %3A'] = { "amqp://user:pass:more@host" },
    ['the password in the URL holds a "#": write it as %23'] = { "amqp://user:pa#ss@host" },
    ['the password in the URL holds a "%" without two hexadecimal digits behind it: write it as %25'] = {
      "amqp://user:100%@host" },
    ["the password in the URL holds a NUL (%00)"] = { "amqp://user:a%00b@host" },
    ['the user in the URL holds a "%" without'] = { "amqp://us%er@host" },
    ['the host in the URL holds a " ": write it as %20'] = { "amqp://ho st" },
    ['the host in the URL holds a "%" without'] = { "amqp://ho%st" },
    ["the host in the URL holds a control character, such as the end of a line"] = { "amqp://host\nmore" },
    ["a port in the URL holds a control character, such as the end of a line"] = { "amqp://host:5672\n# more" },
    ["the virtual host in the URL holds a control character"] = { "amqp://host/vhost\nmore" },
    ["the query in the URL holds a control character"] = { "amqp://host?heartbeat=5\nmore" },
    ["a port in the URL is not a whole number from 1 to 65535"] = { "amqp://host:port", "amqp://host:65536",
      "amqp://host:5672x", "amqp://host:56 72", "amqp://host:", "amqp://host:0", "amqp://[::1]:x", "amqp://a,b:x",
      "amqp://user:secret" }, -- what is missing is an "@" and a host
    ['a host in the URL has more than one ":"'] = { "amqp://host:5672:1" },
    ["in brackets: [::1]"] = { "amqp://::1" },
    ["an IPv6 address in the URL is not in brackets"] = { "amqp://[::1", "amqp://[::1]x", "amqp://a,[]:1" },
    ['the virtual host in the URL holds a "%" without'] = { "amqp://host/%zz" },
    ['the virtual host in the URL holds a "/": write it as %2F'] = { "amqp://host/a/b" },
    ['a host in the URL is empty, before or behind a ","'] = { "amqp://a,", "amqp://,a", "amqp://a,,b", "amqp://a,:1" },
    ["the URL names more hosts than 64"] = { "amqp://" .. ("h,"):rep(64) .. "h" },
    ["the URL holds a NUL"] = { "amqp://h\0ost" },
  }
  it("is refused, and the cure told", function ()
    for words, urls in pairs(bad) do
      for _, url in ipairs(urls) do
        local why = core.url_error(url)
        assert.is_truthy(why and why:find(words, 1, true), ("%q says nothing of %q"):format(tostring(why), words))
        assert.same({ nil, "url: " .. why, "url" }, { core.bytes{ url = url } })
      end
    end
  end)

  it("with parts that are too long is refused, and the part is named", function ()
    for part, row in pairs{ ["the host"] = { "amqp://%s", 255 }, ["the user"] = { "amqp://%s@h", 255 },
      ["the password"] = { "amqp://u:%s@h", 3455 }, ["the virtual host"] = { "amqp://h/%s", 255 } } do
      local url, most = row[1], row[2]
      assert.is_nil(core.url_error(url:format(("x"):rep(most))))
      assert.equal(("%s in the URL is longer than %d bytes"):format(part, most),
        core.url_error(url:format(("x"):rep(most + 1))))
    end
    assert.matches("^cacertfile in the URL is longer", core.url_error("amqp://h?cacertfile=" .. ("x"):rep(1024)))
    local longest = "amqp://" .. ("x"):rep(16376)
    assert.matches("^the host in the URL is longer", core.url_error(longest))
    assert.equal("the URL is longer than 16383 bytes", core.url_error(longest .. "x"))
  end)
end)

describe("text for the broker", function ()
  it("is UTF-8 without control characters", function ()
    for _, text in ipairs{ "", "plain", "\195\164", "\226\130\172", "\240\159\148\146", "a b" } do
      assert.is_nil(core.text_error(text))
    end
    for _, text in ipairs{ "\255", "a\195", "\192\128", "\237\160\128", "\244\144\128\128", "\164" } do
      assert.equal("is not UTF-8", core.text_error(text))
    end
    for _, text in ipairs{ "a\0b", "\n", "\127", "\194\133" } do
      assert.equal("holds a control character", core.text_error(text))
    end
  end)

  -- RabbitMQ answers it with FRAME_ERROR.
  it("is also the name of a virtual host", function ()
    assert.equal("the name of the virtual host is not UTF-8", core.url_error "amqp://host/jobs\255")
    assert.same({ "guest", "guest", "j\195\182bs" }, shown "amqp://host/j\195\182bs")
  end)
end)

describe("a query parameter", function ()
  it("is asked for, percent-decoded, the last of its kind, unless something is given beside the URL", function ()
    for query, expected in pairs{ -- heartbeat, channel_max
      ["heartbeat=65535"] = { 65535, 2047 }, ["channel_max=5&heartbeat=9"] = { 9, 5 },
      ["h%65artbeat=%37"] = { 7, 2047 }, ["heartbeat=3&channel_max=9&heartbeat=4"] = { 4, 9 },
    } do
      local ok = Peer.new({ url = "amqp://host?" .. query }).holder:tuned()
      assert.same(expected, { ok.heartbeat, ok.channel_max })
    end
    assert.equal(60, Peer.new({ url = "amqp://host?heartbeat=3", heartbeat = 60 }).holder:tuned().heartbeat)
  end)

  it("connection_timeout is milliseconds", function ()
    local peer = Peer.new({ url = "amqp://host?connection_timeout=1500" })
    local op = peer.session:open()
    peer.holder:attach()
    assert.equal(1.5, peer:tick())
    peer:fails_after(1.5, op, "unreachable")
  end)

  it("is taken, or refused and its key named", function ()
    for _, query in ipairs{ "auth_mechanism=external", "verify=verify_peer", "verify=verify_none",
      "cacertfile=/etc/ca.pem", "certfile=c.pem&keyfile=k.pem", "server_name_indication=broker.example" } do
      assert.is_nil(core.url_error("amqps://host?" .. query))
    end
    for _, query in ipairs{ "heartbeat=0", "heartbeat=65536", "heartbeat=-1", "heartbeat=", "heartbeat=1.5",
      "heartbeat= 1", "heartbeat=99999999999999999999", "channel_max=0", "channel_max=65536", "connection_timeout=0",
      "connection_timeout=86400001", "auth_mechanism=scram", "verify=yes" } do
      local words = ("the URL gives %s a value it cannot have; it takes "):format(query:match("^(.-)="))
      assert.equal(words, core.url_error("amqp://host?" .. query):sub(1, #words))
    end
    assert.matches('^the URL has a query parameter that is not known: "hartbeat"; known are heartbeat, .* and server',
      core.url_error("amqp://h?hartbeat=1"))
    for _, query in ipairs{ "heartbeat", "heartbeat=1&x", "heart%xbeat=1", "heartbeat=%0", "heartbeat=%00" } do
      assert.equal('the query of the URL is not made of key=value pairs, with "%" written as %25',
        core.url_error("amqp://host?" .. query))
    end
  end)
end)

describe("a list of URLs", function ()
  -- The hosts that a session would try, one after another.
  local function hosts(url)
    local session, found = assert(core.loop{ url = url }), {}
    local op = session:open()
    while session:due("holder") do
      local host, port, _, tls = session:address("holder")
      table.insert(found, (tls and "amqps " or "") .. host .. ":" .. port)
      session:fail("holder", "unreachable", "nobody is there")
    end
    assert.is_true(op:done())
    return found
  end

  it("has all hosts of all of them", function ()
    assert.same({ "a:5672", "b:5673", "c:5672" }, hosts("amqp://u:p@a,b:5673,c/v"))
    assert.same({ "a:5672", "b:5673", "c:5671", "::1:7" }, hosts{ "amqp://a", "amqp://u:p@b:5673" , "amqp://c:5671",
      "amqp://[::1]:7" })
    assert.same({ "a:5672", "b:1", "amqps c:5671" }, hosts{ "amqp://a,b:1", "amqps://c" })
  end)

  it("says which of them is wrong", function ()
    assert.equal('URL 2 of 3: the password in the URL holds a "#": write it as %23',
      core.url_error{ "amqp://a", "amqp://u:#@b", "c" })
    assert.equal("the list of URLs is empty", core.url_error{})
    assert.matches("^URL 65 of 65: the URLs name more hosts than 64$", core.url_error((function ()
      local list = {}
      for i = 1, 65 do list[i] = "amqp://h" .. i end
      return list
    end)()))
  end)

  it("leads to places, which differ in all but user and password", function ()
    local function places(url, options)
      local all = core.places{ url = url, tls = options, name = "n" }
      table.sort(all)
      return table.concat(all, ";")
    end
    local one = places{ "amqps://u:p@a/v", "amqps://b:5672/v" }
    assert.equal(one, places{ "amqps://other:word@b:5672/v", "amqps://a:5671/v" })
    assert.equal(one, places "amqps://u:p@a,b:5672/v")
    assert.is_nil(one:find("u", 1, true))
    for _, other in ipairs{ { "amqps://a/v", "amqps://b/v" }, { "amqps://a/w", "amqps://b:5672/w" },
      { "amqp://a:5671/v", "amqps://b:5672/v" }, { "amqps://a/v" }, { "amqps://a/v?heartbeat=5", "amqps://b:5672/v" },
      { "amqps://a/v?verify=verify_none", "amqps://b:5672/v" } } do
      assert.is_not.equal(one, places(other))
    end
    assert.is_not.equal(one, places({ "amqps://a/v", "amqps://b:5672/v" }, { server_name = "c" }))
    assert.is_nil(core.places{ url = "amqp://a@b@c" })
  end)

  it("is for one virtual host", function ()
    assert.matches("their virtual hosts must be the same", core.url_error{ "amqp://a/v", "amqp://b" })
    assert.is_nil(core.url_error{ "amqp://a/%2f", "amqp://b" })
  end)
end)

it("a password is in no message about a URL", function ()
  for _, url in ipairs{ "amqp://me:secret@host:port", "amqp://me:secret@host?x=1",
    "amqp://me:secret@host?heartbeat=0", "http://me:secret@host", "amqp://me:secret@host/%zz",
    "amqp://me:secret@" .. ("h"):rep(256), "amqp://me:" .. ("secret"):rep(600) .. "@host", "amqp://me:secret@host/a/b",
    "amqp://me:sec?ret=secret@host/", "amqp://me:secret", "amqp://me:secret,x", "amqp://secret:x:y",
    "amqp://me:secret@a@b", "amqp://me:/secret@b", "amqp://me:[secret]@b", "amqp://me:secret@,x",
    "amqp://me:1?heartbeat=secret@host", "amqp://me:1?secret=1@host" } do
    local message = core.url_error(url)
    assert.is_string(message, url)
    assert.is_nil(message:find("secret", 1, true), message)
  end
end)
