-- Members of a classic group leave: their partitions are for the others to share out, and their ids are refused.
--
-- request: members of {id, instance}; with an instance the id may be empty.
-- reply: status ok; statuses of each: ok | unknown_member | fenced_instance | other_principal.

pass()
local statuses = {}
local gone = false
for i, asked in ipairs(request.members) do
  local holder = asked[2] ~= '' and redis.call('HGET', INSTANCES, asked[2])
  local id = asked[1] ~= '' and asked[1] or holder
  statuses[i] = id and refused_member(id, asked[2], joined_generation) or not id and 'unknown_member' or 'ok'
  if statuses[i] == 'unknown_member' and asked[1] ~= '' and exists then
    refuse(asked[1])
  elseif statuses[i] == 'ok' then
    expel(id)
    gone = true
  end
end
if gone then
  rebalance()
end
return conclude({ status = 'ok', statuses = statuses })
