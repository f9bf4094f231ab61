-- The state of a host: package internal/ledger, type Host. It is a single string, so that
-- it is always written together with its expiry. In microseconds.
local QUORUM, FAILURES, TIME = 3, 10, 2000000
local OBJECTION, REPORT, REPORTS = 10000000, 10000000, 16
local DOWN, PROBE, GAP, ASK = 60000000, 10000000, 500000, 10000
local TRIED, SLACK = 32, 100000
local KEEP = 600000 -- ms
local h = {down = 0, since = 0, fresh = 0, quiet = 0, worked = -1, prober = '', probing = 0, free = 0, failing = {}, turn = 0, tried = {}, others = 0}
local packed = redis.call('GET', KEYS[1])
if packed then
  local ok, v = pcall(cmsgpack.unpack, packed)
  if ok and type(v) == 'table' and #v == 12 then
    h = {down = v[1], since = v[2], fresh = v[3], quiet = v[4], worked = v[5], prober = v[6], probing = v[7], free = v[8], failing = v[9], turn = v[10], tried = v[11], others = v[12]}
  end
end
-- After a failover the clock of Redis may be behind. Then no time is further ahead than
-- the rules allow.
h.fresh, h.worked = math.min(h.fresh, now), math.min(h.worked, now)
h.quiet, h.free = math.min(h.quiet, now + OBJECTION), math.min(h.free, now + PROBE)
h.others = math.min(h.others, now + PROBE)
local function isdown() return h.down == 1 and now - h.fresh < DOWN end
local function save()
  redis.call('SET', KEYS[1], cmsgpack.pack({h.down, h.since, h.fresh, h.quiet, h.worked, h.prober, h.probing, h.free, h.failing, h.turn, h.tried, h.others}), 'PX', KEEP)
end
