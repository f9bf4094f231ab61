-- ARGV: host, failures, microseconds since the first failure, members.
-- Returns {1 if this is a new outage, microseconds since the host is down or -1}.
local host, failures, since, members = ARGV[4], tonumber(ARGV[5]), math.min(now, now - tonumber(ARGV[6])), tonumber(ARGV[7])
if h.down == 1 then
  save() -- the outage is kept for longer
  return {0, num(math.max(0, now - h.since))}
end
if h.worked >= 0 and since <= h.worked then return {0, '-1'} end
local kept = {}
for _, r in ipairs(h.failing) do
  if r[1] ~= me and now - r[4] <= REPORT_TIME then kept[#kept + 1] = r end
end
if #kept < MAX_REPORTS then kept[#kept + 1] = {me, failures, since, now} end
h.failing = kept
local rows, sum, last = 0, 0, 0
for _, r in ipairs(kept) do
  if now - r[3] >= MIN_TIME then
    rows, sum, last = rows + 1, sum + math.min(math.max(r[2], 0), MIN_FAILURES), math.max(last, r[3])
  end
end
if now < h.next or rows < math.max(2, math.min(QUORUM, members)) or sum < MIN_FAILURES then
  save()
  return {0, '-1'}
end
h.down, h.since, h.next, h.failing = 1, last, now + MIN_APART, {}
save()
tell('d', num(now - last) .. ' ' .. host)
return {1, num(now - last)}
