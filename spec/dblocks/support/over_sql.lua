-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The store files of SQL databases: see stores/README.md. Such a store has besides
--
--     store.connect(server) -> connection     of LuaSQL
--     store.connection(server) -> text        Lua for any process, which returns one
local dblocks = require "dblocks"

local over_sql = {}

local load_text = loadstring or load -- luacheck: ignore 113

--- Adds to `store` what follows from its connection(); or from the server in spec/support/servers, whose name is given.
function over_sql.complete(store, dialect, name)
  store.dialect = dialect

  if name then
    local module = "spec.support.servers." .. name

    function store.connection(server) return ("return require(%q).connect(%d)"):format(module, server.address) end

    --- `options`: of the server. A directory of data that was used before is prepared.
    function store.start(options, is_prepared)
      local server, reason = require(module).start(options)
      if not server or is_prepared then return server, reason end
      return store.prepare(server)
    end
  end

  function store.connect(server) return load_text(store.connection(server))() end

  function store.code(server)
    return ([[
      local opts = ... or {}
      opts.dialect = "%s"
      return require("dblocks").sql(function() %s end, opts)
    ]]):format(dialect, store.connection(server))
  end

  function store.pair(server)
    local one = store.connect(server)
    return function()
      assert(one:execute("INSERT INTO mutexes (resource_type, resource_id, ticket, acquired_at)"
        .. " VALUES ('bare', '1', 'mine', 1)"))
      assert(one:execute "DELETE FROM mutexes WHERE resource_type = 'bare' AND resource_id = '1' AND ticket = 'mine'")
    end
  end

  --- Makes the table of locks, and another one for specs.
  function store.prepare(server)
    local one = assert(store.connect(server))
    assert(dblocks.sql(one, { dialect = dialect }):setup())
    assert(one:execute "CREATE TABLE counters (n INTEGER)")
    one:close()
    return server
  end

  return store
end

return over_sql
