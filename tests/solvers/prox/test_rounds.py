"""Rounds of sweeps and Newton steps end at the goal, or where rounding keeps the violation from falling."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from dualnewton.solvers.prox.rounds import alternate, reachable_goal


@dataclass
class Scripted:
    """A point whose steps leave given violations, one after the other."""

    left: list[float]
    ends: bool = True
    violation: float = 1.0
    calls: list[str] = field(default_factory=list)

    def sweep(self, goal):  # noqa: ARG002
        self.calls.append("sweep")

    def step(self):
        self.calls.append("step")
        self.violation = self.left.pop(0)
        return self.ends


def test_rounds_alternate_until_the_goal_is_reached():
    point = Scripted([0.5, 0.1, 1e-3, 1e-9])
    assert alternate(point, 1e-3, rounds=10, in_vain=2, shrinks=0.5)
    assert point.calls == ["sweep", "step"] * 3


@pytest.mark.parametrize(("ends", "rounds"), [(True, 3), (False, 6)])
def test_rounds_that_leave_the_violation_are_counted_only_at_the_minimum_over_what_is_in_use(ends, rounds):
    point = Scripted([0.1] * 6, ends)
    assert not alternate(point, 1e-3, rounds=6, in_vain=2, shrinks=0.5)
    assert point.calls.count("step") == rounds  # the first has nothing to compare with


def test_no_goal_is_below_rounding():
    H, slopes, sizes = np.diag([4.0, 9.0]), np.array([1.0, 2.0]), np.array([1.0, 1e3])
    assert reachable_goal(1e-3, H, slopes, sizes) == 1e-3
    assert reachable_goal(0.0, H, slopes, np.zeros(2)) == 8e-16
    assert reachable_goal(0.0, H, slopes, sizes) == pytest.approx(1e-16 * 3.0 * (2.0 + 3e3))
