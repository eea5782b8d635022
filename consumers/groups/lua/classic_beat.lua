-- Renews the session of a member of a classic group.
--
-- request: member, instance_id, generation.
-- reply: status ok | unknown_member | fenced_instance | other_principal | illegal_generation | rebalance_in_progress: it
-- is to join anew.

pass()
local refused = refused_member(request.member, request.instance_id, request.generation)
if refused then
  return conclude({ status = refused })
end
renew(request.member, member_of(request.member).session_timeout_ms)
return conclude({ status = phase == 'preparing' and 'rebalance_in_progress' or 'ok' })
