-- ARGV: host.
if h.probing > 0 and h.prober == me then
  h.probing, h.free = 0, now + PROBE_GAP
  local tried = {}
  for _, m in ipairs(h.tried) do if m ~= me then table.insert(tried, m) end end
  table.insert(tried, me)
  if #tried > MAX_TRIED then table.remove(tried, 1) end
  h.tried = tried
  save()
end
return 0
