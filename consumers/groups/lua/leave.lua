-- request: member. Its partitions are free at once and its id is refused, also where it never arrived here.

local id = request.member
if redis.call('HEXISTS', MEMBERS, id) == 1 then
  remove(id)
  settle()
elseif exists then
  refuse(id)
end
return finish({ status = 'ok' })
