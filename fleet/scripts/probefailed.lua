-- ARGV: host.
if h.probing == 1 and h.prober == me then
  h.probing, h.free = 0, now + GAP
  save()
end
return 0
