-- Forgets topics that were deleted: the offsets committed in them, and that the group ever saw them.
--
-- request: topics, each "{topic}/{topic id}".
-- reply: status ok.

local gone = {}
for _, topic in ipairs(request.topics) do
  gone[topic] = true
  redis.call('HDEL', TOPICS, topic)
end
for _, partition in ipairs(redis.call('HKEYS', OFFSETS)) do
  if gone[string.match(partition, '^(.*)/')] then
    redis.call('HDEL', OFFSETS, partition)
    redis.call('HDEL', ATTEMPTS, partition)
  end
end
return finish({ status = 'ok' })
