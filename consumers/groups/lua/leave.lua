-- request: member. Its partitions are free at once and its id is refused, also where it never arrived here.
-- reply: status ok | other_principal | classic.

local id = request.member
if redis.call('HEXISTS', MEMBERS, id) == 1 then
  if is_classic then
    return finish({ status = 'classic' })
  end
  if is_anothers(id) then
    return finish({ status = 'other_principal' })
  end
  remove(id)
  settle()
elseif exists then
  refuse(id)
end
return finish({ status = 'ok' })
