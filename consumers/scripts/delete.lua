-- reply: status ok | unknown_group | group_not_empty. The generation and the ids that are refused outlive the group
-- for a day.

if not exists then
  return finish({ status = 'unknown_group' })
end
if redis.call('ZCARD', SESSIONS) > 0 then
  return finish({ status = 'group_not_empty' })
end
local reply = finish({ status = 'ok' })
redis.call('DEL', MEMBERS, SESSIONS, HELD, OWNERS, MOVES, REVOKED, TOPICS, OFFSETS, INSTANCES, ATTEMPTS, UNSAVED)
redis.call('HDEL', STATE, 'created', 'stale', 'hold', 'urgent')
redis.call('PEXPIRE', STATE, int(REFUSED_MS))
return reply
