# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# The specs in other ways: under each Lua, with other RabbitMQs, for longer, again and again.

# The versions of Lua that the module supports, but for lua5.5, of which Debian has packages only in sid: see SUITES.
LUAS := lua5.4 lua5.3 lua5.1 luajit

matrix: ## all specs, or SPEC=path, under every Lua, one after the other
	+@tools/matrix $(LUAS) -- $(if $(SPEC),SPEC="$(SPEC)") $(if $(GC),GC=1)

# Debian's releases, each with its RabbitMQ and rabbitmq-c. sid:bookworm is sid with the RabbitMQ of bookworm.
SUITES := bookworm trixie sid bookworm:sid sid:bookworm

matrix-brokers: ## all specs, or SPEC=path, with other RabbitMQs and rabbitmq-cs, in chroots; as root; SUITES=sid
	@LUA=$(LUA) tools/matrix $(SUITES) -- $(if $(SPEC),SPEC="$(SPEC)") $(if $(GC),GC=1)

soak: export AMQPLOCKS_SOAK = 1
soak: test ## the long form of the specs

soak-suite: prepare ## the specs with a broker again and again, beside a load: [N=20] [LOAD=8] [SPEC=path]
	$(BUILD_FOR_SPECS) lib lib-lua
	@$(WITH_ENV) spec/support/soak-suite $(or $(SPEC),spec/sim spec/broker)

# nginx-lua-prometheus is in no Debian package. spec/broker/openresty_metrics_spec.lua finds it there.
metrics-rock: prepare ## nginx-lua-prometheus from LuaRocks, in build/rocks: the specs of metrics in nginx need it
	@luarocks --lua-version=5.1 --tree=build/rocks install nginx-lua-prometheus 0.20240525
