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

local UNAUTHORIZED, TOO_MANY = 401, 429
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

-- Whether a token is good, by whose key it says that it was signed with.
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
end

local function refuse(status, challenge)
  if challenge then
    ngx.header["WWW-Authenticate"] = challenge
  end
  ngx.status = status
  ngx.header["Content-Type"] = "application/json"
  ngx.print('{"message":"' .. (status == TOO_MANY and "API rate limit exceeded" or "Unauthorized") .. '"}')
  -- The answer is out; this ends the call.
  return ngx.exit(ngx.HTTP_OK)
end

local function jwt()
  local value = ngx.var.http_authorization
  local token = value and value:sub(1, 7):lower() == "bearer " and value:sub(8)
  if not token or not verified(token) then
    return refuse(UNAUTHORIZED, "Bearer")
  end
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

local ACCESS = {
  ["JwtHs256"] = jwt,
  ["JwtRs256"] = jwt,
  ["ApiKey"] = consumer,
  ["ApiKeyAndLimit"] = function()
    limit(consumer())
  end,
}

-- Once for each worker.
function api.init_worker()
  api.issuers, api.consumers = {}, {}
  if settings.functions == "JwtHs256" then
    api.issuers[settings.issuer] = { algorithm = "HS256", is_signed = hs256(read("jwt.key")) }
  elseif settings.functions == "JwtRs256" then
    api.issuers[settings.issuer] = { algorithm = "RS256", is_signed = rs256(read("jwt.key")) }
  else
    for key, name in read("consumers"):gmatch("(%S+) (%S+)\n") do
      api.consumers[key] = name
    end
  end
  api.access = ACCESS[settings.functions]
end

return api
