-- Puts back what `_offsets` has: what is absent, and of two the higher version. What was deleted there goes, where Redis
-- is of before that. From the first call on keepers before this one are refused.
--
-- request: restores (the log), keeper, deleted (the version up to which the group was deleted, 0 for never), forgotten of
-- {partition, version} up to which its offset was, entries of {partition, offset, version, metadata, ms,
-- leader epoch, -1 for none}, topics of
-- {topic, partitions}, unsaved (partitions whose offset `_offsets` is yet to have), last (no more will follow: whoever
-- waits may be answered).
-- reply: status ok; behind: no keeper, or an earlier one, had the group before this call; undone: the group was deleted;
-- strange: another log had it, and this one never did.

local behind = keeper < request.keeper
local undone = exists and created_ms <= request.deleted
if undone then
  wipe()
  exists, is_classic, stale, hold, deadline = false, false, false, 0, 0
  held_cache, held_dirty, changed = {}, {}, {}
end
local strange = is_strange()
forget_up_to(request.deleted)
for _, entry in ipairs(request.forgotten) do
  local packed = redis.call('HGET', OFFSETS, entry[1])
  if packed and cmsgpack.unpack(packed)[2] <= entry[2] then
    redis.call('HDEL', OFFSETS, entry[1])
    redis.call('HDEL', ATTEMPTS, entry[1])
    saved(entry[1])
  end
  forget_up_to(entry[2])
end
for _, entry in ipairs(request.entries) do
  local packed = redis.call('HGET', OFFSETS, entry[1])
  if not packed or cmsgpack.unpack(packed)[2] < entry[3] then
    redis.call('HSET', OFFSETS, entry[1], cmsgpack.pack({ unpack(entry, 2, entry[6] >= 0 and 6 or 5) }))
  end
end
if #request.entries > 0 then
  create()
end
if behind and redis.call('EXISTS', STATE) == 1 then
  keeper = request.keeper
  redis.call('HSET', STATE, KEEPER, keeper)
end
for _, topic in ipairs(request.topics) do
  redis.call('HSETNX', TOPICS, topic[1], int(topic[2]))
end
for _, partition in ipairs(request.unsaved) do
  redis.call('HSETNX', UNSAVED, partition, '0')
end
if request.last and exists then
  redis.call('HSET', STATE, 'restored/' .. request.restores, stored[4])
end
return finish({ status = 'ok', behind = behind, undone = undone, strange = strange })
