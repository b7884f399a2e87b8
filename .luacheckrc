-- luacheck: ignore
std = "max"
max_line_length = 120
files["spec"].std = "max+busted"
files["tools"].std = "max+busted"
files["lua/amqplocks/nginx"].read_globals = { "ngx" }
files["lua/amqplocks/drivers/init.lua"].read_globals = { "ngx" }
files["lua/amqplocks/drivers/resty.lua"].read_globals = { "ngx" }
files["examples/testing"].std = "max+busted"
