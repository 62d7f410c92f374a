"""Laws of the policy, on adversarial logs."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from perseus.recurring import pruning
from perseus.recurring.policy import Outcome, PolicySettings, advance, decide, initial_state, replay_log

sizes = st.lists(st.sampled_from([2**k for k in range(10)]), min_size=1, max_size=6, unique=True)


@st.composite
def policies(draw: st.DrawFn) -> PolicySettings:
    chosen = draw(sizes)
    return PolicySettings(
        batch_sizes=tuple(chosen),
        default=draw(st.sampled_from(chosen)),
        beta=draw(st.sampled_from([1.5, 2.0, math.inf])),
        window=draw(st.sampled_from([0, 2, 10])),
        seed=draw(st.integers(0, 2**63 - 1)),
    )


outcomes = st.builds(
    Outcome,
    batch_size=st.sampled_from([2**k for k in range(10)]),
    phase=st.sampled_from(["pruning", "sampling", "concurrent"]),
    ending=st.sampled_from(["reached", "capped", "exhausted", "abandoned", "unmeasured"]),
    cost_j=st.floats(0.0, 1e9),
    cap_j=st.floats(0.0, 1e9) | st.just(math.inf),
)


@given(policy=policies(), log=st.lists(outcomes, max_size=40), exploring=st.booleans())
@settings(deadline=None)
def test_any_log_leads_to_a_sound_decision(policy: PolicySettings, log: list[Outcome], exploring: bool) -> None:
    state = replay_log(policy, log)
    decision = decide(state, policy, len(log), exploring=exploring)
    assert decision.batch_size in policy.batch_sizes
    assert decision.phase == "concurrent" if exploring else decision.phase in ("pruning", "sampling")
    assert decision.cap_j > 0.0
    assert decision == decide(state, policy, len(log), exploring=exploring)


@given(policy=policies(), log=st.lists(outcomes, max_size=40), cut=st.integers(0, 40))
@settings(deadline=None)
def test_the_state_is_a_fold_over_the_log(policy: PolicySettings, log: list[Outcome], cut: int) -> None:
    state = replay_log(policy, log[:cut])
    for outcome in log[cut:]:
        state = advance(state, policy, outcome)
    assert state == replay_log(policy, log)


@given(policy=policies(), costs=st.lists(st.floats(1.0, 100.0), min_size=10, max_size=10))
@settings(max_examples=50, deadline=None)
def test_fixed_costs_are_learned(policy: PolicySettings, costs: list[float]) -> None:
    """With a cost per batch size that never changes, the end is the cheapest that pruning can see."""
    cost_of = dict(zip([2**k for k in range(10)], costs, strict=True))
    state = initial_state(policy)
    reached: set[int] = set()
    for number in range(2 * len(policy.batch_sizes) + 12):
        decision = decide(state, policy, number)
        cost = cost_of[decision.batch_size]
        ending = "reached" if cost <= decision.cap_j else "capped"
        if ending == "reached":
            reached.add(decision.batch_size)
        outcome = Outcome(decision.batch_size, decision.phase, ending, min(cost, decision.cap_j), decision.cap_j)
        state = advance(state, policy, outcome)
    assert state.resets == 0
    last = decide(state, policy, 1000)
    assert last.phase == "sampling"
    assert cost_of[last.batch_size] == min(cost_of[size] for size in reached)


def plain_pruning(candidates: list[int], start: int, works: dict[int, bool], cost: dict[int, float]) -> list[int]:
    """Pruning as two nested loops, for comparison; returns the order of trials."""
    order = []
    for _ in range(2):
        kept = []
        index = candidates.index(start)
        for direction in (candidates[index::-1], candidates[index + 1 :]):
            for size in direction:
                order.append(size)
                if not works[size]:
                    break
                kept.append(size)
        if not kept:
            return order
        candidates, start = sorted(kept), min(kept, key=lambda size: (cost[size], size))
    return order


@given(chosen=sizes, data=st.data())
@settings(deadline=None)
def test_pruning_is_that_of_two_plain_loops(chosen: list[int], data: st.DataObject) -> None:
    candidates = sorted(chosen)
    start = data.draw(st.sampled_from(candidates))
    works = {size: data.draw(st.booleans()) for size in candidates}
    cost = {size: data.draw(st.sampled_from([1.0, 2.0, 3.0])) for size in candidates}
    state = pruning.begin(tuple(candidates), start)
    order = []
    for _ in itertools.count():
        if state.pending is None:
            break
        order.append(state.pending)
        state = pruning.advance(state, reached=works[state.pending], cost_j=cost[state.pending])
    assert order == plain_pruning(candidates, start, works, cost)
    assert all(works[size] for size in state.candidates)
