-- ARGV: host, members. Returns {1 if granted, microseconds to wait}.
local free = h.free
if h.probing == 0 and h.prober == me and free > 0 then free = free + GAP end
if now < free and not (h.probing == 1 and h.prober == me) then -- else the member did not get its answer
  return {0, num(math.max(math.min(free - now, GAP), tonumber(ARGV[5]) * ASK))}
end
h.prober, h.probing, h.free, h.fresh = me, 1, now + PROBE, now
save()
return {1, '0'}
