"""What a server counts of its groups."""

from groups_rig import FakeLog, held, refusal, rig, run

from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset


def test_what_is_counted(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(flights=2)
        async with rig(valkey_url, log) as r:
            counts = r.groups.counts
            a = await r.join("g", "a", "flights", instance_id="i", session_timeout_ms=10_000)
            assert counts.rebalances == {"members": 1, "topics": 0} and list(r.groups.member_counts().values()) == [1]
            topic_id = log.topic("flights").topic_id
            log.create("flights", 3).topic_id = topic_id
            await r.tick()
            assert counts.rebalances == {"members": 1, "topics": 1}
            await r.tick()
            assert counts.rebalances == {"members": 1, "topics": 1}, "nothing had changed"

            entry = CommittedOffset("flights", 0, 1)
            await r.groups.offsets.commit("g", CommitRequest([entry], "a", a.generation))
            await refusal(r.groups.offsets.commit("g", CommitRequest([entry], "stranger", a.generation)))
            assert counts.commits == {"accepted": 1, "fenced": 1}

            back = await r.join("g", "a2", "flights", instance_id="i", session_timeout_ms=10_000)
            assert counts.evictions == {"session": 0, "rebalance": 0, "instance": 1}
            assert len(held(back)) == 3 and counts.rebalances["members"] == 1, "nothing moved"
            await r.join("g", "b", "flights", session_timeout_ms=60_000, rebalance_timeout_ms=1_000)
            assert list(r.groups.member_counts().values()) == [2]
            await r.redis.pass_ms(11_000)
            await r.tick()
            assert counts.evictions == {"session": 1, "rebalance": 0, "instance": 1}
            assert list(r.groups.member_counts().values()) == [1]

            await r.join("g", "c", "flights")
            assert (await r.beat("g", "b", 1)).releasing
            await r.redis.pass_ms(2_000)
            await r.tick()
            assert counts.evictions == {"session": 1, "rebalance": 1, "instance": 1}

    run(scenario())
