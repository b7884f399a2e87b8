-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- TLS sessions of luaossl, for event loops whose sockets accept them. They trust the same authorities, and present the
-- same certificate, as the native driver.
local luaossl = {}

local CERTIFICATE = "%-%-%-%-%-BEGIN CERTIFICATE%-%-%-%-%-.-%-%-%-%-%-END CERTIFICATE%-%-%-%-%-"

local function contents(path)
  local file, problem = io.open(path, "rb")
  if not file then error(problem, 0) end
  local text = file:read "*a"
  file:close()
  return text or error(path .. " cannot be read", 0)
end

local function trust(context, ca)
  local store = require "openssl.x509.store".new()
  if ca then
    contents(ca)
    store:add(ca)
  else
    store:addDefaults()
  end
  context:setStore(store)
end

-- The first certificate of the file is the client's; those after it form the chain to an authority.
local function present(context, cert, key)
  local x509 = require "openssl.x509"
  local chain, first = require "openssl.x509.chain".new(), nil
  for pem in contents(cert):gmatch(CERTIFICATE) do
    local one = x509.new(pem, "PEM")
    if first then chain:add(one) end
    first = first or one
  end
  if not first then error("there is no certificate", 0) end
  local private = require "openssl.pkey".new(contents(key), "PEM")
  if private:toPEM "public" ~= first:getPublicKey():toPEM "public" then
    error("the key does not belong to the certificate", 0)
  end
  context:setCertificate(first)
  context:setCertificateChain(chain)
  context:setPrivateKey(private)
end

local function is_address(name) return name:find("^%d+%.%d+%.%d+%.%d+$") or name:find(":", 1, true) end

local function expect(session, name)
  local param = require "openssl.x509.verify_param".new()
  if is_address(name) then param:setIP(name) else param:setHost(name) end
  session:setParam(param)
end

local function attempt(words, ...)
  local fine, problem = pcall(...)
  if not fine then error(("%s: %s"):format(words, problem), 0) end
end

local function build(tls)
  local contexts = require "openssl.ssl.context"
  local context = contexts.new("TLS", false)
  context:setVerify(tls.verify and contexts.VERIFY_PEER or contexts.VERIFY_NONE)
  if tls.cert then
    attempt(('cannot use the certificate "%s" with the key "%s"'):format(tls.cert, tls.key or tls.cert),
      present, context, tls.cert, tls.key or tls.cert)
  end
  if tls.verify then
    local whose = tls.ca and ('"%s"'):format(tls.ca) or "the system"
    attempt("cannot read the certificates of " .. whose, trust, context, tls.ca)
  end
  local session = require "openssl.ssl".new(context)
  if tls.verify then expect(session, tls.server_name) end
  if not is_address(tls.server_name) then session:setHostName(tls.server_name) end
  return session
end

--- Makes a TLS session of a client.
---@param tls { ca?: string, cert?: string, key?: string, verify: boolean, server_name: string }
---@return any session, string? message
function luaossl.session(tls)
  if not pcall(require, "openssl.ssl.context") then return nil, "there is no luaossl, which cqueues needs for TLS" end
  local fine, session = pcall(build, tls)
  if not fine then return nil, session end
  return session
end

--- Returns what was wrong with the peer's certificate; nil: nothing.
---@return string|nil
function luaossl.complaint(session)
  local code, words = session:getVerifyResult()
  return code ~= 0 and words or nil
end

return luaossl
