-- Whether all groups were restored in this process of Redis.
--
-- KEYS[1] is restored_key.
-- reply: run_id, that of this process; epoch of the keeper that has restored them here, -1 for nobody.

local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'run_id')
return cmsgpack.pack({ run_id = run_id, epoch = stored[2] == run_id and tonumber(stored[1]) or -1 })
