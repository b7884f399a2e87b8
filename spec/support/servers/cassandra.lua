-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A throw-away Cassandra, of one node or of three, on 127.0.0.1 and the next addresses.
--
--     local cluster = cassandra.start(3)
--     local port = cluster:bridge(1)     -- for cassandra_client.lua: to node 1
--     cluster:signal(2, "STOP")          -- node 2; "CONT"
--     cluster:kill(2)
--     cluster:restart(2)                 -- with its data
--     cluster:stop()
--
-- Maven copies Cassandra to build/cassandra, once. A node has 512 MB of heap, and takes 0.9 GB of memory.
local process = require "spec.support.process"
local server = require "spec.support.servers.server"
local until_true = require "spec.support.until"

local cassandra = {}
local Cluster = {}
Cluster.__index = Cluster

local SECONDS = 120 -- until a node serves, on a busy machine
local POM, BRIDGE = "spec/support/servers/cassandra.xml", "spec/dblocks/support/cassandra_bridge.py"

-- What Cassandra's own conf/jvm17-server.options opens of Java.
local EXPORTS = [[java.base/java.lang.ref java.base/jdk.internal.misc
  java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry java.rmi/sun.rmi.server
  java.sql/java.sql jdk.attach/sun.tools.attach jdk.compiler/com.sun.tools.javac.file jdk.unsupported/sun.misc]]
local OPENS = [[java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect
  java.base/java.util java.base/jdk.internal.loader java.base/jdk.internal.math java.base/jdk.internal.module
  java.base/jdk.internal.ref java.base/jdk.internal.reflect java.base/jdk.internal.util.jar java.base/sun.nio.ch
  jdk.compiler/com.sun.tools.javac jdk.management/com.sun.management.internal]]

-- A copy that was interrupted is not taken for a whole one.
local COPY = [[
  mkdir -p build/cassandra
  exec 9>build/cassandra/lock
  flock 9
  [ -d build/cassandra/jars ] || {
    rm -rf build/cassandra/part
    mvn -q -B -f "$1" dependency:copy-dependencies -DoutputDirectory="$PWD/build/cassandra/part" &&
      mv build/cassandra/part build/cassandra/jars
  }
]]

local JAVA = "ls -d /usr/lib/jvm/java-17-openjdk*/bin/java 2>/dev/null | head -n 1"

local function here() return (process.shell("pwd"):match "[^\n]+") end

local function jars()
  local fine, output = pcall(process.shell, "sh", "-c", COPY, "sh", POM)
  if fine then return here() .. "/build/cassandra/jars" end
  return nil, "Maven cannot copy Cassandra; CASSANDRA=0 leaves its specs out: "
    .. (tostring(output):match "%[ERROR%] ([^\n]*)" or tostring(output))
end

local YAML = [[
cluster_name: dblocks
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
num_tokens: 1
auto_bootstrap: false
listen_address: %s
rpc_address: %s
storage_port: %d
native_transport_port: %d
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1"
data_file_directories: [ "%s/data" ]
commitlog_directory: "%s/commitlog"
hints_directory: "%s/hints"
saved_caches_directory: "%s/caches"
cdc_raw_directory: "%s/cdc"
%s
commitlog_segment_size: 4MiB
paxos_variant: %s
]]

-- How often a node writes to its disk. By default, every 10 seconds; a node that is killed forgets some of the last
-- moments, which the other replicas know.
local SYNC = { batch = "commitlog_sync: batch", periodic = "commitlog_sync: periodic\ncommitlog_sync_period: 10s" }

local LOGBACK = [[
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%level %date{HH:mm:ss.SSS} %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
]]

local function words_of(java, place, own)
  local words = {
    java, "-javaagent:" .. place .. "/jamm-0.4.0.jar", "-Xms256m", "-Xmx512m", "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1", -- a node lives for minutes: the second compiler would not pay
    "-Djdk.attach.allowAttachSelf=true", "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dcassandra.config=file://" .. own .. "/cassandra.yaml", "-Dcassandra.storagedir=" .. own,
    "-Dlogback.configurationFile=" .. own .. "/logback.xml", "-Dcassandra-foreground=yes",
    "-Dcassandra.ring_delay_ms=1000", "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.consistent.rangemovement=false",
  }
  for package in EXPORTS:gmatch "%S+" do table.insert(words, "--add-exports=" .. package .. "=ALL-UNNAMED") end
  for package in OPENS:gmatch "%S+" do table.insert(words, "--add-opens=" .. package .. "=ALL-UNNAMED") end
  for _, word in ipairs { "-cp", place .. "/*", "org.apache.cassandra.service.CassandraDaemon" } do
    table.insert(words, word)
  end
  return words
end

local function address_of(number) return "127.0.0." .. number end

-- Begins to start a node. It is ended by SIGKILL, which a stopped process gets, too.
function Cluster:_begin(number)
  local own, address = self.directory .. "/" .. number, address_of(number)
  process.shell("mkdir", "-p", own)
  process.write(own .. "/cassandra.yaml", YAML:format(address, address, self.storage_port, self.port, own, own, own,
    own, own, self.sync, self.variant))
  process.write(own .. "/logback.xml", LOGBACK)
  self.nodes[number] = server.start(function()
    return words_of(self.java, self.jars, own), function() return true end, "KILL"
  end)
end

function Cluster:_await(number)
  local node = self.nodes[number]
  until_true(function()
    if not process.stat(node.pid) then
      error("Cassandra does not start: " .. (process.contents(node.directory .. "/log") or ""):sub(-2000), 0)
    end
    return server.listens(self.port, address_of(number)), "Cassandra does not serve"
  end, SECONDS)
end

--- Starts a process that executes CQL on a node; returns its port.
function Cluster:bridge(number)
  local port, place = server.free_port(), here()
  local words = { "/usr/bin/python3", place .. "/" .. BRIDGE, address_of(number) }
  for _, word in ipairs { self.port, port } do table.insert(words, tostring(word)) end
  table.insert(self.bridges, (server.start(function()
    return words, function() return server.listens(port) end
  end)))
  return port
end

function Cluster:signal(number, name) process.shell("kill", "-s", name, tostring(self.nodes[number].pid)) end

--- SIGKILL. Returns when the node is gone.
function Cluster:kill(number) self.nodes[number]:stop() end

--- Starts it again, with its data.
function Cluster:restart(number)
  self:_begin(number)
  self:_await(number)
end

--- Ends everything.
function Cluster:stop()
  for _, each in ipairs(self.bridges) do each:stop() end
  for _, each in ipairs(self.nodes) do
    if process.stat(each.pid) then each:stop() end
  end
  process.shell("rm", "-rf", self.directory)
end

--- Starts `count` nodes (1); nil: why there is none here. `how`: sync, "batch", or "periodic", the default as that of
-- Cassandra; variant, of Paxos: "v2", or "v1", likewise.
function cassandra.start(count, how)
  how = how or {}
  local java = process.shell("sh", "-c", JAVA):match "%S+"
  if not java then return nil, "no Java 17 here; CASSANDRA=0 leaves the specs of Cassandra out" end
  local place, problem = jars()
  if not place then return nil, problem end
  local self = setmetatable({
    java = java, jars = place, directory = process.directory(), port = server.free_port(),
    storage_port = server.free_port(), variant = how.variant or "v1",
    sync = SYNC[how.sync or "periodic"], nodes = {}, bridges = {},
  }, Cluster)
  self:_begin(1)
  self:_await(1)
  for number = 2, count or 1 do self:_begin(number) end
  for number = 2, count or 1 do self:_await(number) end
  return self
end

return cassandra
