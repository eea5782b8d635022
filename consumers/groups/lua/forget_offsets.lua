-- Forgets what the group has committed in some partitions: who gets them next begins where its policy says.
--
-- request: restores, keeper, above, the highest version there (where something is kept beside Redis), partitions.
-- reply: status ok | unknown_group | group_not_empty (nobody knows what its members read); subscribed: those of
-- `partitions` that stay, as members read their topics; had: those of the others that had an offset; version: none of
-- them had a higher one.

if not exists then
  return finish({ status = 'unknown_group' })
end
if is_classic and redis.call('ZCARD', SESSIONS) > 0 and redis.call('HGET', STATE, 'protocol_type') ~= 'consumer' then
  return finish({ status = 'group_not_empty' })
end

local read = {}
for _, partition in ipairs(redis.call('HKEYS', OWNERS)) do
  read[string.match(partition, '^(.-)/')] = true
end
for _, packed in ipairs(redis.call('HVALS', MEMBERS)) do
  for topic in string.gmatch(cmsgpack.unpack(packed).topics, '[^,]+') do
    read[topic] = true
  end
end

local subscribed, had = {}, {}
local version = math.max(request.above or 0, forgotten, now)
for _, partition in ipairs(request.partitions) do
  local packed = redis.call('HGET', OFFSETS, partition)
  if read[string.match(partition, '^(.-)/')] then
    subscribed[#subscribed + 1] = partition
  else
    if packed then
      had[#had + 1] = partition
      version = math.max(version, cmsgpack.unpack(packed)[2])
    end
    redis.call('HDEL', OFFSETS, partition)
    redis.call('HDEL', ATTEMPTS, partition)
    saved(partition)
  end
end
forget_up_to(version)
return finish({ status = 'ok', subscribed = subscribed, had = had, version = version })
