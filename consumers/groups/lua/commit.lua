-- request: member (absent: only while the group has none), generation, commits of {partition, offset, metadata, and
-- optionally up to where records were handed out}.
-- reply: status ok | other_principal | fenced_commits (with partitions) | group_not_empty. All or nothing.

if request.member then
  if is_anothers(request.member) then
    return finish({ status = 'other_principal' })
  end
  local fenced = fenced_commits(request.member, request.generation, request.commits)
  if #fenced > 0 then
    return finish({ status = 'fenced_commits', partitions = fenced })
  end
elseif redis.call('ZCARD', SESSIONS) > 0 then
  return finish({ status = 'group_not_empty' })
end
create()
-- Without a member it says where the group is to go on.
put_offsets(request.commits, not request.member)
return finish({ status = 'ok' })
