"""Breakages of residency and of moves of whole stores, which tests of their stores must catch."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

HERE = "tests/storage/test_residency.py::test_"
RULES = "tests/storage/test_residency_rules.py::test_"
MOVES = "tests/storage/test_moving.py::test_"
AGREEMENT = "storage/residency/agreement.py"
PROVIDER = "storage/residency/provider.py"
MOVING = "storage/moving.py"

SEVERAL_STORES = (
    Mutant(
        "residency: what matches no pattern goes to the first store",
        PROVIDER,
        "        if store == REFUSE:",
        "        store = next(iter(self.parts)) if store == REFUSE else store\n        if store == REFUSE:",
        tests=(HERE + "without_a_default_what_matches_nothing_is_refused_and_written_nowhere",),
    ),
    Mutant(
        "residency: an instance whose store is away falls back to the first one",
        PROVIDER,
        "            raise self._gone(name)",
        "            return self._first",
        tests=(HERE + "a_store_that_is_away_has_its_instances_all_the_same_and_the_others_go_on",),
    ),
    Mutant(
        "residency: one store that is away is trouble of the whole host",
        PROVIDER,
        "next(iter(troubles.values())) if len(troubles) == len(self.parts) else None",
        "next(iter(troubles.values()), None)",
        tests=(HERE + "a_store_that_is_away_has_its_instances_all_the_same_and_the_others_go_on",),
    ),
    Mutant(
        "residency: nobody looks whether instances stay where they are",
        AGREEMENT,
        "        await _check_stay(name, parts[name], rules)\n",
        "",
        tests=(HERE + "rules_that_would_move_an_instance_are_refused_at_the_start_and_change_nothing",),
    ),
    Mutant(
        "residency: rules change although a store that they fixed instances to is not there",
        AGREEMENT,
        "            _check_reached(name, kept[name].rules, parts, rules)\n",
        "            pass\n",
        tests=(HERE + "rules_do_not_change_while_a_store_that_they_fix_instances_to_is_away",),
    ),
    Mutant(
        "residency: stores may be mixed up",
        AGREEMENT,
        "        if one.store != name:",
        "        if False:",
        tests=(HERE + "a_store_that_comes_late_under_a_wrong_name_is_not_used",),
    ),
    Mutant(
        "residency: hosts with other rules use a store together",
        AGREEMENT,
        "if not one.name.endswith(mark)]",
        "if False]",
        tests=(HERE + "a_shared_store_of_several_is_not_opened_alone_and_its_hosts_agree_on_the_rules",),
    ),
    Mutant(
        "residency: a store of several that is opened alone forgets the rules",
        "storage/residency/opening.py",
        "    if RESIDENCY not in notes:",
        "    if True:",
        tests=(HERE + "a_store_of_several_that_is_opened_alone_serves_its_own_instances_only",),
    ),
    Mutant(
        "residency: what one store loses is lost of all",
        "storage/residency/merged.py",
        "    return is_of(name, actor) and event.covers(actor)",
        "    return event.covers(actor)",
        tests=(HERE + "what_one_store_loses_touches_no_actor_of_another",),
    ),
    Mutant(
        "residency: patterns of different stores may overlap",
        "storage/residency/rules.py",
        "            if store != other and (both",
        "            if False and (both",
        tests=(RULES + "rules_that_are_accepted_give_each_name_one_store_in_whatever_order",),
    ),
    Mutant(
        "move: a store is sealed before it was compared",
        MOVING,
        "        sums = await self._compare()\n",
        "        sums = await total(self._source.provider, self._tell)\n",
        tests=(MOVES + "a_difference_is_found_before_anything_is_sealed",),
    ),
    Mutant(
        "move: the wake time is not compared",
        MOVING,
        r'sha256(f"{name}\0{store.wake_at}\0".encode())',
        r'sha256(f"{name}\0".encode())',
        also=(
            (MOVING, "    wake_at: int | None\n    digest", "    wake_at: object = field(compare=False)\n    digest"),
            (MOVING, "import dataclass, replace", "import dataclass, field, replace"),
        ),
        tests=(MOVES + "a_wake_time_that_differs_is_found",),
    ),
    Mutant(
        "move: the target is opened before the source is sealed",
        MOVING,
        """\
        await write_notes(self._source.provider, {MOVE: left.written()})
        await self._open_target(left)
""",
        """\
        await self._open_target(left)
        await write_notes(self._source.provider, {MOVE: left.written()})
""",
        tests=(MOVES + "a_move_that_is_killed_at_any_transaction_goes_on_and_one_store_at_most_is_served",),
    ),
    Mutant(
        "move: the source is served while it is copied",
        "storage/notes.py",
        '        Part.LEAVING: f"{place} is being moved to {note.other} by `tocsin move`: {again}",\n',
        "",
        tests=(MOVES + "a_move_that_is_killed_at_any_transaction_goes_on_and_one_store_at_most_is_served",),
    ),
    Mutant(
        "move: the name of the last page is not noted",
        MOVING,
        "            await write_notes(self._target.provider, {PROGRESS: page[-1].encode()})\n",
        "",
        tests=(MOVES + "what_was_copied_is_not_copied_again",),
    ),
    Mutant(
        "move: a store that is not empty is written over",
        MOVING,
        '[name for name in await target.names("", 2) if name != NOTES]',
        "[]",
        tests=(MOVES + "stores_that_are_no_pair_are_refused_and_left_as_they_are",),
    ),
    Mutant(
        "moves: a host that came at that moment is not looked for",
        MOVING,
        "        await self._check_still_alone(noted)\n",
        "",
        tests=(MOVES + "a_host_that_comes_before_a_move_is_noted_is_seen_and_the_move_is_taken_back",),
    ),
    Mutant(
        "moves: a host that comes gets its share from under the copy",
        MOVING,
        "announce(None, OWNS_ALL)",
        "announce(None, 1)",
        tests=(MOVES + "hosts_that_come_while_a_store_is_moved_are_refused_and_hold_nothing_up",),
    ),
    Mutant(
        "moves: accepted calls are left behind in the mail",
        MOVING,
        "(waiting := (await shared.facts()).mail)",
        "(waiting := 0)",
        tests=(MOVES + "a_store_with_calls_in_its_mail_is_not_moved",),
    ),
    Mutant(
        "moves: a host that was dead begins anew in a store that was moved",
        "storage/ownership/provider.py",
        '        check_not_moved(await read_notes(self.view(NOTES)), f"the store {self.place}")',
        "        await asyncio.sleep(0)",
        tests=(
            "tests/storage/ownership/test_failover.py::test_"
            "a_host_that_stood_still_while_the_store_was_moved_away_does_not_begin_anew",
        ),
    ),
    Mutant(
        "residency: mail that is done is ended in another store than where it lies",
        "storage/residency/shared.py",
        "one[0].store if isinstance(one[0], _Came) else ",
        "",
        tests=(
            "tests/storage/test_residency_mail.py::test_"
            "mail_for_an_actor_in_a_store_of_this_host_alone_is_ended_where_it_lies",
        ),
    ),
)
