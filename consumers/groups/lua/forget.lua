-- Forgets topics that were deleted: the offsets committed in them, and that the group ever saw them.
--
-- request: topics, each "{topic}/{topic id}".
-- reply: status ok.

local gone = {}
for _, topic in ipairs(request.topics) do
  gone[topic] = true
  redis.call('HDEL', TOPICS, topic)
end
for _, key in ipairs({ OFFSETS, ATTEMPTS }) do
  for _, partition in ipairs(redis.call('HKEYS', key)) do
    if gone[string.match(partition, '^(.*)/')] then
      redis.call('HDEL', key, partition)
    end
  end
end
for _, partition in ipairs(redis.call('HKEYS', UNSAVED)) do
  if gone[string.match(partition, '^(.*)/')] then
    saved(partition)
  end
end
return finish({ status = 'ok' })
