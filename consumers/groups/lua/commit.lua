-- request: member (absent: only while the group has none), generation, instance_id (of a classic group's member, where
-- it is static), commits of {partition, offset, metadata, and optionally up to where records were handed out, and the
-- leader epoch}.
-- reply: status ok | other_principal | fenced_commits (with partitions, and known: whether there is such a member) |
-- group_not_empty; of a classic group also unknown_member | fenced_instance | illegal_generation |
-- rebalance_in_progress. All or nothing.

if request.member and is_classic then
  -- A member that joins again commits what it has read before it lets go of it, but what comes after that is another's.
  local refused = refused_member(request.member, request.instance_id, request.generation)
  if refused or phase == 'completing' then
    return finish({ status = refused or 'rebalance_in_progress' })
  end
  renew(request.member, member_of(request.member).session_timeout_ms)
elseif request.member then
  if is_anothers(request.member) then
    return finish({ status = 'other_principal' })
  end
  local fenced = fenced_commits(request.member, request.generation, request.commits)
  if #fenced > 0 then
    local known = redis.call('HEXISTS', MEMBERS, request.member) == 1
    return finish({ status = 'fenced_commits', partitions = fenced, known = known })
  end
elseif redis.call('ZCARD', SESSIONS) > 0 then
  return finish({ status = 'group_not_empty' })
end
create()
-- Without a member it says where the group is to go on.
put_offsets(request.commits, not request.member)
return finish({ status = 'ok' })
