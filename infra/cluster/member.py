"""A member: what it knows of the cluster, and its turns, as steps: to arrive, to beat, to look, to survey.

Whoever wrote the newest view looks at all beats and plans; the others look at its beat alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.cluster import router, steps
from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.beat import Beat, Going, Report, Wish, encode_beat
from siltlog.infra.cluster.clashes import dissolved, elsewhere, rival, stranger, succeeded
from siltlog.infra.cluster.identity import (
    LEASES_CUT_OFF,
    LEASES_UNCLAIMED,
    LIST_SECONDS,
    OFFERED_SECONDS,
    RANK_SECONDS,
    UNREADY_SECONDS,
    Identity,
    Timing,
)
from siltlog.infra.cluster.planning.controller import Seen, cut_off, offers, plan, redisless, unclaimed, unready
from siltlog.infra.cluster.steps import Steps
from siltlog.infra.cluster.survey import NOTHING_FOUND, Found, Survey, Tables
from siltlog.infra.cluster.view import ClusterView
from siltlog.infra.cluster.watch import Watch
from siltlog.infra.errors import problem

LATE_SECONDS = 0.005
"""How long after the end of a lease the look at it comes: timers may go off a little early."""
DEAF_LEASES = 0.5
"""After how many leases without an answer of the store a node no longer beats."""
SURVEY_AFTER_LEASES = 2
"""After how many leases a new controller looks at tables: those that it gives away are taken meanwhile."""


class Member:
    """One turn of a kind at a time; those of different kinds may be under way together."""

    def __init__(
        self,
        identity: Identity,
        timing: Timing,
        clock: Clock,
        report: Callable[[], Report],
        ids: Callable[[], str],
        tables: Tables | None = None,
        addresses: Addresses | None = None,
        refused: Callable[[], Collection[str]] = tuple,
        found: Found = NOTHING_FOUND,
    ) -> None:
        """`ids` makes ids that nobody ever had; `refused()` are the journals of suspects at whose addresses nobody
        listens; `found` is for the first view of a cluster."""
        self.addresses = addresses or Addresses()
        self.identity = identity
        self.view = ClusterView(
            number=0,
            format=identity.formats,
            cluster_id=identity.cluster_id,
            controller="",
            journal="",
            nonce="",
            journal_root=identity.journal_root,
            journal_root_id=identity.journal_root_id,
        )  # before anybody has written one
        self.journal = ids()
        self.beats: Mapping[str, Beat] = {}
        """What the last round of the controller read, on this node."""
        self.rounds = 0
        self.listed = False
        """Whether a view has named the present journal."""
        self._timing = timing
        self._clock = clock
        self._report = report
        self._ids = ids
        self._survey = Survey(tables, clock, found.topics)
        self._first_term = found.term
        self._known = {self.journal}
        """Journals under which this node may stand in a view: its own, and those that were there when it came."""
        self._ends: tuple[str, ...] = ()
        self._going: Going = "on"
        self._wishes: dict[str, Wish] = {}
        self._beat = 0
        self._beat_began = float("-inf")
        self._looked_at = self._listed_at = self._view_asked_at = float("-inf")
        self._refused = refused
        self._watch = Watch(timing.lease_ms, timing.heartbeat_ms)
        self._since: dict[object, float] = {}
        self._rivals: dict[str, tuple[str, int]] = {}
        self._controllers: Beat | None = None
        """The controller's newest beat, as another node has read it."""

    # What others are told.

    @property
    def controls(self) -> bool:
        return self.view.journal == self.journal

    @property
    def _obeys(self) -> bool:
        """Whether another node controls. Before the first view nobody does, nor in one that dissolves the cluster."""
        return bool(self.view.controller) and not self.controls

    @property
    def controllers_redis(self) -> str:
        """What the controller has found in its Redis; empty where that is not known, or this node is it."""
        beat = self._controllers
        return "" if self.controls or beat is None or beat.journal != self.view.journal else beat.report.redis

    @property
    def fresh(self) -> bool:
        """Whether its own newest beat that has landed, and its last look for a newer view, are younger than the lease:
        else others may have taken it for gone, and it has not heard of it."""
        return self.silent_s < self._timing.lease_s

    @property
    def silent_s(self) -> float:
        """How long ago its newest beat that has landed began, or its last look for a newer view."""
        return self._clock.monotonic() - min(self._beat_began, self._view_asked_at)

    @property
    def in_view(self) -> bool:
        return self.view.listed(self.identity.node, self.journal)

    @property
    def rest_s(self) -> float:
        """How long it may wait before it looks again: a lease that ends before is looked at then."""
        now = self._clock.monotonic()
        wait_s = 0.0 if self.controls else self._rank() * RANK_SECONDS
        return min(self._timing.look_s, self._watch.ends_at(now, self._refusing(), wait_s) - now + LATE_SECONDS)

    @property
    def suspects(self) -> Sequence[router.Member]:
        """Members that this node watches, and whose beats are late, where they may be called."""
        members = dict(self.view.members())
        found = [self.addresses.member(node, members[node]) for node in self._watch.suspects() if node in members]
        return [each for each in found if each is not None and each.journal != self.journal]

    def goes(self, going: Going) -> None:
        self._going = going

    def wish(self, wish: Wish) -> None:
        """Asks the controller for something, until a view tells of it."""
        self._wishes[wish.id] = wish

    def drop(self, wish_id: str) -> None:
        self._wishes.pop(wish_id, None)

    def reopen(self) -> None:
        """Goes on under another journal: the present one is over."""
        self._ends = (*self._ends[-8:], self.journal)
        self.journal = self._ids()
        self._known.add(self.journal)
        self.listed = False

    # Its turns.

    def arrive(self) -> Steps[bool]:
        """Whether it may begin to beat. Where another may still be this node, it is to be asked again, look after look.

        Raises ConfigError when another is this node: with another data directory, or a copy of this one; and when a
        controller that lives has another secret, or a member where there is none.
        """
        began = self._clock.monotonic()
        yield from self._find(listing=True)
        mine = self.identity
        rivals: dict[str, str] = {}
        for node, entry in self.view.members():
            same_place = (entry.data_dir, entry.place) == (mine.data_dir, mine.place)
            if node == mine.node or entry.data_dir == mine.data_dir:
                self._known.add(entry.journal)
                if entry.data_dir == mine.data_dir:
                    self._ends = tuple(dict.fromkeys((*self._ends, entry.journal)))
                if not same_place:
                    rivals[node] = entry.journal
        strangers = self.addresses.strangers(mine.node, self.view) - rivals.keys()
        beats = yield from steps.beats_of({mine.node, *rivals, *strangers}, mine.formats)
        # All may have been given another secret while none was up: one that has come since is none.
        strangers -= {node for node, beat in beats.items() if self.addresses.says(beat)}
        rivals |= {node: self.view.nodes[node].journal for node in strangers}
        there = beats.get(mine.node)
        if there is not None and there.data_dir == mine.data_dir:
            self._known.add(there.journal)
        if there is not None and mine.node not in rivals:
            if there.going != "away" and (there.data_dir, there.place) != (mine.data_dir, mine.place):
                rivals[mine.node] = there.journal
            if there.data_dir == mine.data_dir:
                self._ends = tuple(dict.fromkeys((*self._ends, there.journal)))
        for node in rivals:
            beat = beats.get(node)
            journal, number = ("", 0) if beat is None else (beat.journal, beat.beat)
            before = self._rivals.setdefault(node, (journal, number))
            if beat is not None and (journal != before[0] or number > before[1]):
                raise (stranger if node in strangers else rival)(mine, beat)
        rivals = {node: beats[node].journal if node in beats else "" for node in rivals}
        self._watch.looked(began, self._clock.monotonic(), rivals, beats, began)
        return all(self._watch.beat_stood_s(node) >= self._timing.lease_s for node in rivals)

    def beat(self) -> Steps[None]:
        """Says that it lives, and how far it is; nothing while the store answers nothing.

        Who has not heard of it for a while asks it for a view first: who slept beats at once all the same.
        """
        began = self._clock.monotonic()
        if self._is_deaf(began):
            yield from self._find(listing=False)
            began = self._clock.monotonic()
        self._beat += 1
        identity = self.identity
        beat = Beat(
            beat=self._beat,
            format=min(self.view.format, identity.formats),
            formats=identity.formats,
            node=identity.node,
            data_dir=identity.data_dir,
            place=identity.place,
            journal=self.journal,
            ends=self._ends,
            url=identity.url,
            proof=self.addresses.proof(identity.node, self.journal, identity.url),
            kafka=identity.kafka,
            kafka_proof=self.addresses.kafka_proof(identity.node, self.journal, identity.kafka),
            zone=identity.zone,
            version=identity.version,
            going=self._going,
            view=self.view.number,
            rounds=self.rounds,
            wishes=tuple(self._wishes.values()),
            report=self._report(),
        )
        yield from steps.put_beat(beat, encode_beat(beat))
        self._beat_began = max(began, self._beat_began)

    def _is_deaf(self, now: float) -> bool:
        """Whether it hears nothing of the store, which may hear it all the same: others are to see that its beats stop
        (rule CM15)."""
        heard_at = max(self._beat_began, self._view_asked_at)
        return self._going != "away" and now - heard_at > DEAF_LEASES * self._timing.lease_s

    def look(self) -> Steps[None]:
        """Finds the newest view, and sees after the cluster as far as that is this node's part.

        Raises ConfigError when another has come as this node.
        """
        began = self._clock.monotonic()
        slept = began - self._looked_at > self._timing.lease_s / 2
        try:
            yield from self._find(listing=slept or began - self._listed_at >= LIST_SECONDS)
            if self.controls:
                yield from self._round()
            elif self._going != "away":
                yield from self._follow()
        except Exception:
            self._watch.failed()
            self._since.clear()
            raise
        finally:
            self._looked_at = self._clock.monotonic()

    def survey(self) -> Steps[bool]:
        """Looks at tables, as the controller, whenever that is due; whether there may be something to be done now."""
        looked = self.controls and (yield from self._survey.look(self.view))
        if self._obeys:
            self._survey.forget()
        return looked

    def _find(self, *, listing: bool) -> Steps[None]:
        began = self._clock.monotonic()
        if listing:
            found = yield from steps.newest_view(self.view.number, self.identity.formats)
            self._listed_at = self._clock.monotonic()
        else:
            found = yield from steps.next_view(self.view.number, self.identity.formats)
        if found is not None:
            self._see(found)
        self._view_asked_at = began

    def _see(self, view: ClusterView) -> None:
        """Moves up to a view."""
        if view.number <= self.view.number:
            return
        if view.cluster_id != self.identity.cluster_id:
            raise problem("corrupt_data", f"{names.view_object(view.number)} is of cluster {view.cluster_id}")
        if view.dissolved and self._beat:
            raise dissolved(view)
        if not view.dissolved and view.journal_root_id != self.identity.journal_root_id:
            raise elsewhere(self.identity, view)
        self._survey.saw(self.view, view)
        if view.journal == self.journal and not self.controls and view.topics:
            self._survey.put_off(SURVEY_AFTER_LEASES * self._timing.lease_s)
        self.view = view
        if self._obeys:
            self._survey.forget()
        entry = view.nodes.get(self.identity.node)
        # Before its first beat it is `arrive` that finds out whether who was there is gone.
        if self._beat and entry is not None and entry.state != "away" and entry.journal not in self._known:
            if (entry.data_dir, entry.place) != (self.identity.data_dir, self.identity.place):
                raise succeeded(self.identity, entry)
            # What a process before this one said has arrived late: it was of this data directory, and is no more.
            self._known.add(entry.journal)
            self._ends = (*self._ends[-8:], entry.journal)
        if self.in_view:
            self.listed = True
        elif self._going != "away" and (self.listed or self._was_listed(view)):
            self.reopen()

    def _was_listed(self, view: ClusterView) -> bool:
        """Whether views that this node did not see had its journal, which is lost since."""
        entry = view.nodes.get(self.identity.node)
        last = view.removed.get(self.identity.node) if entry is None else entry.journal
        return last == self.journal

    def _follow(self) -> Steps[None]:
        """Looks at the controller's beat, and rules in its place once that stands still."""
        controller = self.view.controller
        if not controller:
            return (yield from self._round())
        began = self._clock.monotonic()
        beats = yield from steps.beats_of([controller], self.identity.formats)
        beat = self._controllers = beats.get(controller)
        gone = beat is None or beat.journal != self.view.journal or beat.going == "away"
        goes_on = self._looked(began, {controller: self.view.journal}, beats)
        gone_s = self._lasted({("gone", self.view.journal)} if gone and goes_on else ()).get(
            ("gone", self.view.journal), -1.0
        )
        wait_s = self._rank() * RANK_SECONDS
        silent_s = self._watch.overdue_s(controller, controller in self._refusing())
        if (beat is not None and gone_s >= wait_s) or silent_s >= wait_s:
            yield from self._round()
        return None

    def _rank(self) -> int:
        """Its place among those who would rule next."""
        heirs = sorted(node for node, entry in self.view.members() if node != self.view.controller)
        return heirs.index(self.identity.node) if self.identity.node in heirs else len(heirs)

    def _round(self) -> Steps[None]:
        """Looks at all beats, and puts what is to change into the next view."""
        began = self._clock.monotonic()
        view = self.view
        self.beats = beats = yield from steps.all_beats(self.identity.formats)
        members = {node: entry.journal for node, entry in view.members()}
        self._looked(began, members, beats)
        ended = self._clock.monotonic()
        ailing = {("unready", node) for node in unready(view, beats)}
        alone = {("cut off", node) for node in cut_off(view, beats)}
        lacking = {("redisless", node) for node in redisless(view, beats)}
        idle = {("unclaimed", *pair) for pair in unclaimed(view, beats)}
        offered = min(offers(view, beats), self.identity.formats)
        rising = {("format", offered)} if offered > view.format else set()
        lasted = self._lasted(ailing | alone | lacking | idle | rising)
        overdue_s = LEASES_UNCLAIMED * self._timing.lease_s
        lost = self._watch.lost(len(members), self._refusing())
        seen = Seen(
            beats=beats,
            lost=[node for node in lost if node != self.identity.node],
            unready=[
                str(key[1])
                for keys, seconds in ((ailing, UNREADY_SECONDS), (alone, LEASES_CUT_OFF * self._timing.lease_s))
                for key in keys
                if lasted[key] >= seconds
            ],
            redisless=[key[1] for key in lacking if lasted[key] >= LEASES_CUT_OFF * self._timing.lease_s],
            overdue=[(name, term) for _, name, term in idle if lasted["unclaimed", name, term] >= overdue_s],
            tables=self._survey.found,
            format=offered if rising and lasted["format", offered] >= OFFERED_SECONDS else 0,
            now_us=self._clock.now_us(),
        )
        following = plan(self._begun(view), seen, self.identity.node, self.journal, self._ids())
        if view is not self.view or self._clock.monotonic() - ended > self._timing.lease_s / 2:
            return  # what it went by is of long ago
        if following is not None:
            if not (yield from steps.put_view(following)):
                return (yield from self._find(listing=True))
            gone = [node for node, entry in following.nodes.items() if entry.state == "away" and node in lost]
            self._watch.buried(len(gone))
            self._see(following)
            for node in following.removed.keys() - view.removed.keys():
                yield partial(steps.delete, names.beat_object(node))
        self._survey.forget()
        self.rounds += 1

    def _begun(self, view: ClusterView) -> ClusterView:
        """What the next view is planned on. Of the first, no term may be one that a server gave itself while it was
        alone, and nothing is in the journals that there were."""
        if view.controller:
            return view
        place, place_id = self.identity.journal_root, self.identity.journal_root_id
        return replace(view, term=max(view.term, self._first_term), journal_root=place, journal_root_id=place_id)

    def _refusing(self) -> set[str]:
        """The members at whose addresses nobody listens."""
        refused = self._refused()
        return {node for node, entry in self.view.members() if entry.journal in refused}

    def _looked(self, began: float, journals: Mapping[str, str], beats: Mapping[str, Beat]) -> bool:
        goes_on = self._watch.looked(began, self._clock.monotonic(), journals, beats, self._beat_began)
        if not goes_on:
            self._since.clear()
        return goes_on

    def _lasted(self, keys: Collection[tuple[object, ...]]) -> dict[tuple[object, ...], float]:
        """For how many seconds each of these has been so, look after look."""
        now = self._clock.monotonic()
        self._since = {key: self._since.get(key, now) for key in keys}
        return {key: now - self._since[key] for key in keys}
