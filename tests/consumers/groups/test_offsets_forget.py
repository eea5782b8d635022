"""What groups committed in a topic that was deleted goes, from Redis too."""

from groups_rig import FakeLog, Rig, held, rig, run

from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset
from siltlog.infra.redis.keys import group_key

GROUPS = ("g", "h")


async def stored(r: Rig, part: str) -> set[str]:
    """Topics that a part of any group's state names."""
    keys = [await r.redis.command("HKEYS", group_key(group, part)) for group in GROUPS]
    return {field.decode().split("/")[0] for fields in keys for field in fields}


def test_offsets_of_a_deleted_topic_are_forgotten(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(kept=2, gone=2)) as r:
            a = await r.join("g", "a", "kept", "gone")
            entries = [CommittedOffset(topic, partition, 7) for topic in ("kept", "gone") for partition in (0, 1)]
            await r.groups.offsets.commit("g", CommitRequest(offsets=entries, member_id="a", generation=a.generation))
            await r.groups.offsets.commit("h", CommitRequest(offsets=entries))
            await r.tick()
            assert await stored(r, "offsets") == await stored(r, "topics") | {"kept"} == {"kept", "gone"}

            del r.log.by_name["gone"]
            await r.tick()
            assert await stored(r, "offsets") == await stored(r, "topics") == {"kept"}
            told = await r.beat("g", "a", a.generation)
            assert held(told) == [("kept", 0), ("kept", 1)]

            r.log.create("gone", 2)
            await r.tick()
            told = await r.beat("g", "a", told.generation, owned=held(told))
            told = told if told.assignment is not None else await r.beat("g", "a", 0, topics=["kept", "gone"])
            assert {(key.topic, offset) for key, offset in told.assignment or ()} == {("kept", 7), ("gone", 0)}

    run(scenario())
