-- Takes what the leader of a classic group gives each member, and tells a member what it was given.
--
-- request: member, instance_id, generation, protocol_type and protocol (absent: not checked), assignments of {member,
-- bytes, partitions of {topic, number}}: of the leader.
-- reply: status waiting | ok | unknown_member | fenced_instance | other_principal | illegal_generation | inconsistent |
-- rebalance_in_progress. With waiting: session_timeout_ms. With ok: assignment, protocol_type, protocol.

local id = request.member
pass()

local refused = refused_member(id, request.instance_id, request.generation)
if refused then
  return conclude({ status = refused })
end
if (request.protocol_type or protocol_type) ~= protocol_type or (request.protocol or protocol) ~= protocol then
  return conclude({ status = 'inconsistent' })
end
renew(id, member_of(id).session_timeout_ms)
if phase == 'preparing' then
  return conclude({ status = 'rebalance_in_progress' })
end
arrive(id)
if phase == 'completing' and leader == id then
  for _, given in ipairs(request.assignments) do
    if redis.call('HEXISTS', MEMBERS, given[1]) == 1 then
      redis.call('HSET', ASSIGNMENTS, given[1], cmsgpack.pack({ given[2], given[3] }))
    end
  end
  begin_phase('stable', deadline)
  redis.call('HSET', STATE, 'rebalanced', int(now))
  wake_all()
end
if phase == 'completing' then
  return conclude({ status = 'waiting', session_timeout_ms = member_of(id).session_timeout_ms })
end
if deadline > 0 and all_arrived() then
  begin_phase('stable', 0)
end
local packed = redis.call('HGET', ASSIGNMENTS, id)
return conclude({
  status = 'ok', assignment = packed and cmsgpack.unpack(packed)[1] or '', protocol_type = protocol_type,
  protocol = protocol,
})
