-- The end of every script. The script itself is the function run. If it cannot make sense of
-- its first key, somebody else has written the key, and nothing in it can be used. So the
-- script forgets the key and runs again. Every other error is Redis' own.
local ok, reply = pcall(run)
if ok then return reply end
local text = type(reply) == 'table' and tostring(reply.err) or tostring(reply)
if string.find(text, 'WRONGTYPE', 1, true) or type(reply) ~= 'table' and string.find(text, '^user_script:') then
  forget(KEYS[1])
  return run()
end
-- An error with a code of its own, such as OOM, is about Redis. The others are about the script.
if string.find(text, '^ERR ') then text = text .. ', in user_script' end
return redis.error_reply(text)
