-- ARGV: host, members. Returns {1 if granted, microseconds to wait}.
local mine, free = h.prober == me and h.free > 0, h.free
if mine and h.probing > 0 and now < free then -- the probe is under way, or the answer was lost
  local granted = h.probing > 1 and h.probing or free - PROBE_TIME
  h.free = math.min(now + LEND_TIME, granted + PROBE_TIME)
  save()
  return {1, '0'}
end
if mine then free = free + PROBE_GAP end
local tried = false
for _, m in ipairs(h.tried) do tried = tried or m == me end
if now < free or tried and now < h.others then
  local last = now + math.max(PROBE_GAP, tonumber(ARGV[5]) * ASK_EACH)
  h.turn = math.min(math.max(h.turn + ASK_EACH, now + math.min(math.max(free - now, ASK_EACH), PROBE_GAP)), last)
  if not tried then h.others = h.turn + ASK_SLACK end
  save()
  return {0, num(h.turn - now)}
end
if not tried then h.others = 0 end
h.prober, h.probing, h.free, h.fresh = me, now, now + LEND_TIME, now
save()
return {1, '0'}
