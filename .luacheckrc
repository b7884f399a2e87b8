-- luacheck: ignore
std = "max"
max_line_length = 120
-- What every Lua has. Under strict globals, the rest may be read by rawget(_G, name) alone.
files["lua"].std = "min"
files["db-locks"].std = "min"
files["lua"].read_globals = { table = { fields = { "unpack" } }, coroutine = { fields = { "close", "isyieldable" } } }
files["db-locks"].read_globals = { coroutine = { fields = { "close" } } }
files["spec"].std = "max+busted"
files["tools"].std = "max+busted"
files["lua/amqplocks/nginx"].read_globals = { "ngx" }
files["lua/amqplocks/drivers/init.lua"].read_globals = { "ngx" }
files["lua/amqplocks/drivers/resty.lua"].read_globals = { "ngx" }
files["examples/testing"].std = "max+busted"
