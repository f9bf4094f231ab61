-- The GCRA of package internal/ledger, type Tokens, with the same fields in the same order.
-- Times are in microseconds, the first two with three decimals.
-- ARGV: microseconds between two tokens, burst, and the number of tokens.
local every, burst, tokens = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local function frac(x) return string.format('%.3f', x) end
local full = (burst - 1) * every
local limit = math.max(FIRST_AHEAD, every)
local packed = redis.call('GET', KEYS[1]) or ''
local nextone, debt, asked, resumed = string.match(packed, '^(-?%d+%.%d+) (-?%d+%.%d+) (%d+) (%d+)$')
nextone, debt, asked, resumed = tonumber(nextone), tonumber(debt or 0), tonumber(asked or 0), tonumber(resumed or 0)
local function keepbucket()
  local value = frac(nextone) .. ' ' .. frac(debt) .. ' ' .. num(asked) .. ' ' .. num(resumed)
  redis.call('SET', KEYS[1], value, 'PX', num(math.min(math.ceil(math.max(0, nextone - now + full) / 1000) + 1000, MAX_WAIT / 1000)))
end
