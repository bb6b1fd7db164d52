-- What an API gateway does with a call beside passing it on, in Lua: the way of Kong, which is nginx with its functions in
-- Lua. Nothing is remembered of a token that was verified. What can be made ready for all calls is: keys are read and
-- contexts are made once for each worker.
local ffi = require("ffi")
local base64 = require("ngx.base64")
local json = require("json")
local settings = require("settings")

ffi.cdef([[
typedef struct evp_mac_st EVP_MAC;
typedef struct evp_mac_ctx_st EVP_MAC_CTX;
typedef struct evp_md_st EVP_MD;
typedef struct evp_md_ctx_st EVP_MD_CTX;
typedef struct evp_pkey_st EVP_PKEY;
typedef struct bio_st BIO;
typedef struct { const char *key; unsigned int data_type; void *data; size_t data_size, return_size; } OSSL_PARAM;
EVP_MAC *EVP_MAC_fetch(void *library, const char *name, const char *properties);
EVP_MAC_CTX *EVP_MAC_CTX_new(EVP_MAC *mac);
int EVP_MAC_init(EVP_MAC_CTX *context, const char *key, size_t length, const OSSL_PARAM *params);
int EVP_MAC_update(EVP_MAC_CTX *context, const char *data, size_t length);
int EVP_MAC_final(EVP_MAC_CTX *context, unsigned char *out, size_t *length, size_t room);
OSSL_PARAM OSSL_PARAM_construct_utf8_string(const char *key, char *value, size_t length);
OSSL_PARAM OSSL_PARAM_construct_end(void);
int CRYPTO_memcmp(const void *one, const void *other, size_t length);
BIO *BIO_new_mem_buf(const char *data, int length);
int BIO_free(BIO *bio);
EVP_PKEY *PEM_read_bio_PUBKEY(BIO *bio, void *out, void *ask, void *of);
const EVP_MD *EVP_sha256(void);
EVP_MD_CTX *EVP_MD_CTX_new(void);
int EVP_DigestVerifyInit(EVP_MD_CTX *context, void *out, const EVP_MD *digest, void *engine, EVP_PKEY *key);
int EVP_DigestVerify(EVP_MD_CTX *context, const char *signature, size_t length, const char *data, size_t data_length);
]])
local crypto = ffi.C

local UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY = 401, 403, 404, 429
local SKEW = 60 -- seconds that clocks may be apart

local counters = ngx.shared.counters
local api = {}

local function read(name)
  local file = assert(io.open(ngx.config.prefix() .. name))
  local text = file:read("*a")
  file:close()
  return text
end

local function hs256(secret)
  local context = crypto.EVP_MAC_CTX_new(crypto.EVP_MAC_fetch(nil, "HMAC", nil))
  local digest = ffi.new("char[7]", "SHA256")
  local params = ffi.new("OSSL_PARAM[2]", crypto.OSSL_PARAM_construct_utf8_string("digest", digest, 0),
    crypto.OSSL_PARAM_construct_end())
  assert(crypto.EVP_MAC_init(context, secret, #secret, params) == 1)
  local out, length = ffi.new("unsigned char[32]"), ffi.new("size_t[1]")
  return function(text, signature)
    -- With the same key once more.
    local is_made = crypto.EVP_MAC_init(context, nil, 0, nil) == 1
      and crypto.EVP_MAC_update(context, text, #text) == 1
      and crypto.EVP_MAC_final(context, out, length, 32) == 1
    return is_made and #signature == 32 and crypto.CRYPTO_memcmp(out, signature, 32) == 0
  end
end

local function rs256(pem)
  local bio = crypto.BIO_new_mem_buf(pem, #pem)
  local key = crypto.PEM_read_bio_PUBKEY(bio, nil, nil, nil)
  crypto.BIO_free(bio)
  assert(key ~= nil, "a public key that cannot be read")
  local context = crypto.EVP_MD_CTX_new()
  return function(text, signature)
    return crypto.EVP_DigestVerifyInit(context, nil, crypto.EVP_sha256(), nil, key) == 1
      and crypto.EVP_DigestVerify(context, signature, #signature, text, #text) == 1
  end
end

-- The parts of "HEAD.CLAIMS.SIGNATURE".
local function parts(token)
  local first = token:find(".", 1, true)
  local second = first and token:find(".", first + 1, true)
  if not second or token:find(".", second + 1, true) then
    return
  end
  return token:sub(1, first - 1), token:sub(first + 1, second - 1), token:sub(second + 1), token:sub(1, second - 1)
end

local function decoded(part)
  local text = base64.decode_base64url(part)
  local value = text and json(text)
  return type(value) == "table" and value or {}
end

-- The claims of a good token, by whose key it says that it was signed with; else false.
local function verified(token)
  local head, claims, signature, text = parts(token)
  if not head then
    return false
  end
  claims = decoded(claims)
  local issuer = api.issuers[claims.iss]
  if not issuer or decoded(head).alg ~= issuer.algorithm then
    return false
  end
  signature = base64.decode_base64url(signature)
  if not signature or not issuer.is_signed(text, signature) then
    return false
  end
  local now = ngx.time()
  return type(claims.exp) == "number" and now < claims.exp + SKEW
    and (claims.nbf == nil or type(claims.nbf) == "number" and now + SKEW >= claims.nbf)
    and claims
end

local MESSAGES = {
  [UNAUTHORIZED] = "Unauthorized",
  [FORBIDDEN] = "You cannot consume this service",
  [NOT_FOUND] = "no Route matched with those values",
  [TOO_MANY] = "API rate limit exceeded",
}

local function refuse(status, challenge)
  if challenge then
    ngx.header["WWW-Authenticate"] = challenge
  end
  ngx.status = status
  ngx.header["Content-Type"] = "application/json"
  ngx.print('{"message":"' .. MESSAGES[status] .. '"}')
  -- The answer is out; this ends the call.
  return ngx.exit(ngx.HTTP_OK)
end

local function jwt()
  local value = ngx.var.http_authorization
  local token = value and value:sub(1, 7):lower() == "bearer " and value:sub(8)
  return token and verified(token) or refuse(UNAUTHORIZED, "Bearer")
end

-- Whose key it is.
local function consumer()
  local key = ngx.var.http_x_api_key
  local name = key and api.consumers[key]
  if not name then
    return refuse(UNAUTHORIZED, "Key")
  end
  ngx.req.set_header("X-Consumer-Username", name)
  return name
end

-- So many in each window of time, in memory that all workers share: what Kong calls the policy "local".
local function limit(name)
  local window, now = settings.window, ngx.time()
  local start = now - now % window
  local used = assert(counters:incr(name .. ":" .. start, 1, 0, window + 1))
  local header = ngx.header
  header["RateLimit-Limit"] = settings.limit
  header["RateLimit-Remaining"] = math.max(0, settings.limit - used)
  header["RateLimit-Reset"] = start + window - now
  if used > settings.limit then
    return refuse(TOO_MANY)
  end
end

-- API management: the operation of an API, the consumer of the key or the token, its subscription, the limit of the plan.
local function managed()
  local api_name, rest = ngx.var.uri:match("^/([^/]+)/v1(/.*)$")
  local operations = api.apis[api_name]
  local operation = operations and (operations[rest] or operations[(rest:gsub("^(/[^/]+)/[^/]+$", "%1/{id}"))])
  if not operation then
    return refuse(NOT_FOUND)
  end
  local name
  if settings.algorithm == "" then
    name = consumer()
  else
    name = jwt().sub
    ngx.req.set_header("X-Consumer-Username", name)
  end
  local subscriptions = api.subscriptions[name]
  if not subscriptions or not subscriptions[api_name] then
    return refuse(FORBIDDEN)
  end
  local context = ngx.ctx
  context.api, context.operation, context.consumer = api_name, operation, name
  limit(name .. ":" .. api_name)
end

-- Analytics: sums for each minute, API, operation, consumer and status, in the memory of the worker. They are forgotten after
-- the minute; to store them would cost more.
local BOUNDS = { 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5 }
local minute, sums = 0, {}

local function bin(seconds)
  for index, bound in ipairs(BOUNDS) do
    if seconds <= bound then
      return index
    end
  end
  return #BOUNDS + 1
end

local function add(histogram, seconds)
  local index = bin(seconds)
  histogram[index] = (histogram[index] or 0) + 1
end

function api.log()
  local context, variables = ngx.ctx, ngx.var
  if not context.api then
    return
  end
  local now = ngx.time()
  if now - minute >= 60 then
    minute, sums = now - now % 60, {}
  end
  local key = context.api .. " " .. context.operation .. " " .. context.consumer .. " " .. ngx.status
  local sum = sums[key]
  if not sum then
    sum = { requests = 0, received = 0, sent = 0, total = {}, upstream = {} }
    sums[key] = sum
  end
  sum.requests = sum.requests + 1
  sum.received = sum.received + tonumber(variables.request_length)
  sum.sent = sum.sent + tonumber(variables.bytes_sent)
  add(sum.total, tonumber(variables.request_time))
  add(sum.upstream, tonumber(variables.upstream_response_time) or 0)
end

local ACCESS = {
  ["Jwt"] = jwt,
  ["ApiKey"] = consumer,
  ["ApiKeyAndLimit"] = function()
    limit(consumer())
  end,
  ["Managed"] = managed,
}

local ALGORITHMS = { HS256 = hs256, RS256 = rs256 }

local function operations()
  local all = {}
  for resource = 0, settings.resources - 1 do
    local path = string.format("/r%02d", resource)
    all[path], all[path .. "/{id}"] = "list" .. path, "get" .. path
  end
  return all
end

-- Once for each worker.
function api.init_worker()
  api.issuers, api.consumers, api.apis, api.subscriptions = {}, {}, {}, {}
  local is_signed = ALGORITHMS[settings.algorithm]
  if is_signed then
    api.issuers[settings.issuer] = { algorithm = settings.algorithm, is_signed = is_signed(read("jwt.key")) }
  else
    for key, name in read("consumers"):gmatch("(%S+) (%S+)\n") do
      api.consumers[key] = name
    end
  end
  if settings.functions == "Managed" then
    for number = 0, settings.apis - 1 do
      api.apis[string.format("api-%04d", number)] = operations()
    end
    for name, api_name in read("subscriptions"):gmatch("(%S+) (%S+)\n") do
      api.subscriptions[name] = api.subscriptions[name] or {}
      api.subscriptions[name][api_name] = true
    end
  end
  api.access = ACCESS[settings.functions]
end

return api
