-- What the community's controller does in Lua, for one upstream and one certificate: the controller posts endpoints and
-- certificates to a local address, which keeps them in memory that all workers share; each worker looks there every
-- second for other endpoints, and at every handshake for the certificate.
local balancer = require("ngx.balancer")
local ssl = require("ngx.ssl")

local SYNC_INTERVAL = 1 -- seconds: BACKENDS_SYNC_INTERVAL of the controller

local shared = ngx.shared.configuration
local gateway = {}

-- Of this worker.
local peers = {}
local last = 0
local synced = 0

local function sync()
  local version = shared:get("version") or 0
  if version == synced then
    return
  end
  peers = {}
  for address, port in (shared:get("endpoints") or ""):gmatch("(%S+) (%d+)\n") do
    peers[#peers + 1] = { address = address, port = tonumber(port) }
  end
  -- Workers do not begin at the same one.
  last = math.random(0, #peers)
  synced = version
  shared:set("synced " .. ngx.worker.id(), version)
end

function gateway.init_worker()
  math.randomseed(ngx.now() * 1000 + ngx.worker.pid())
  -- After a reload they are known.
  sync()
  assert(ngx.timer.every(SYNC_INTERVAL, sync))
end

function gateway.rewrite()
  if #peers == 0 then
    return ngx.exit(ngx.HTTP_SERVICE_UNAVAILABLE)
  end
end

-- Called for each try.
function gateway.balance()
  last = last % #peers + 1
  local peer = peers[last]
  if not peer then
    return
  end
  balancer.set_more_tries(1)
  local ok, problem = balancer.set_current_peer(peer.address, peer.port)
  if not ok then
    ngx.log(ngx.ERR, "cannot take ", peer.address, ": ", problem)
  end
end

function gateway.certificate()
  local pem = shared:get("certificate")
  if not pem then
    return
  end
  assert(ssl.clear_certs())
  assert(ssl.set_der_cert(assert(ssl.cert_pem_to_der(pem))))
  assert(ssl.set_der_priv_key(assert(ssl.priv_key_pem_to_der(pem))))
end

-- POST /endpoints, POST /certificate, and GET /synced: whether all workers have the endpoints.
function gateway.configuration()
  if ngx.var.uri == "/synced" then
    for id = 0, ngx.worker.count() - 1 do
      if shared:get("synced " .. id) ~= shared:get("version") then
        return ngx.exit(ngx.HTTP_SERVICE_UNAVAILABLE)
      end
    end
    return ngx.say("yes")
  end
  ngx.req.read_body()
  assert(shared:set(ngx.var.uri:sub(2), ngx.req.get_body_data() or ""))
  if ngx.var.uri == "/endpoints" then
    assert(shared:incr("version", 1, 0))
  end
  ngx.say("done")
end

return gateway
