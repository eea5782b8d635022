-- request: unused_since (absent: whenever it was used last), Redis ms.
-- reply: status ok | unknown_group | group_not_empty | used. The generation and the ids that are refused outlive the
-- group for a day.

if not exists then
  return finish({ status = 'unknown_group' })
end
if redis.call('ZCARD', SESSIONS) > 0 then
  return finish({ status = 'group_not_empty' })
end
if request.unused_since then
  local last = tonumber(redis.call('HGET', STATE, 'emptied') or redis.call('HGET', STATE, 'created'))
  for _, packed in ipairs(redis.call('HVALS', OFFSETS)) do
    last = math.max(last, cmsgpack.unpack(packed)[4])
  end
  if last >= request.unused_since then
    return finish({ status = 'used' })
  end
end
local reply = finish({ status = 'ok' })
redis.call('DEL', MEMBERS, SESSIONS, HELD, OWNERS, MOVES, REVOKED, TOPICS, OFFSETS, INSTANCES, ATTEMPTS, UNSAVED,
  PROTOCOLS, ASSIGNMENTS, ARRIVED)
redis.call('HDEL', STATE, 'created', 'stale', 'hold', 'emptied', 'urgent', 'rebalanced', 'type', 'phase', 'joined',
  'deadline', 'extends', 'protocol_type', 'protocol', 'leader')
redis.call('PEXPIRE', STATE, int(REFUSED_MS))
return reply
