"""The checkers and models by their names, as the command line takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.checkers._acl import check_acl
from jepsen.checkers._key_watches import check_watch
from jepsen.checkers._set_full import check_set_full
from jepsen.checkers._simple import (
    check_availability,
    check_bank,
    check_counter,
    check_group,
    check_lock,
    check_queue,
)
from jepsen.checkers._topics import check_topics
from jepsen.checkers.kafka import check_kafka
from jepsen.checkers.linearizable import Budget, check_linearizable, nonlinearizable
from jepsen.checkers.linearizable.models import (
    GrowingSet,
    Model,
    MultiRegister,
    Mutex,
    Queue,
    Register,
    StringValue,
    UnorderedQueue,
)
from jepsen.checkers.replication.trace import check_trace
from jepsen.checkers.transactions.list_append import check_list_append
from jepsen.checkers.verdict import Checker, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.history import Op

MODELS: Mapping[str, Model] = {
    "register": Register(failed_cas_observes=True),
    "cas-register": Register(failed_cas_observes=True),
    "multi-register": MultiRegister(),
    "mutex": Mutex(),
    "fifo-queue": Queue(),
    "unordered-queue": UnorderedQueue(),
    "set": GrowingSet(),
    "kv": StringValue(),
}
"""A failed `cas` without an error was compared and found another value."""
TRACE = "trace"
CHECKERS: Mapping[str, Callable[..., Verdict]] = {
    "kafka": check_kafka,
    "set": check_set_full,
    "counter": check_counter,
    "queue": check_queue,
    "lock": check_lock,
    "watch": check_watch,
    "bank": check_bank,
    "list-append": check_list_append,
    "group": check_group,
    "topics": check_topics,
    "acl": check_acl,
    "availability": check_availability,
    TRACE: check_trace,
}
LINEARIZABLE = "linearizable"
CHECKER_NAMES = (LINEARIZABLE, *CHECKERS)
Clock = Callable[[], float]


def model_named(name: str, *, lenient: bool = False, initial: Any = None) -> Model:
    """Return the model of that name; KeyError if there is none.

    `lenient`: as in Knossos' test data a read of nil says nothing, nor does a failed `cas`.
    `initial` replaces nil as the first value of a register.
    """
    model = MODELS[name]
    if isinstance(model, Register):
        return replace(
            model,
            initial=initial,
            failed_cas_observes=not lenient,
            nil_read_matches=lenient,
        )
    if isinstance(model, MultiRegister):
        first = tuple(sorted(initial.items())) if isinstance(initial, dict) else ()
        return MultiRegister(first, nil_read_matches=lenient)
    return model


def linearizable(model: Model, budget: Callable[[], Budget] = Budget) -> Checker:
    """Return the checker that holds a history against a model; a budget is taken for each check."""

    def check(history: Sequence[Op]) -> Verdict:
        result = check_linearizable(history, model, budget())
        reasons = {key.why_unknown for key in result.keys if key.valid == "unknown"}
        statistics = {
            "keys": len(result.keys),
            "operations": sum(key.operation_count for key in result.keys),
            "configurations_peak": max((key.configurations_peak for key in result.keys), default=0),
        }
        unknown = "; ".join(sorted(reasons)) if result.valid == "unknown" else ""
        found = tuple(nonlinearizable(key) for key in result.failures)
        return Verdict(result.valid, found, (), statistics, unknown)

    return check


def checker_named(name: str, model: Model, budget: Callable[[], Budget], **options: Any) -> Checker:
    """Return the checker of that name; KeyError if there is none."""
    if name == LINEARIZABLE:
        return linearizable(model, budget)
    return partial(CHECKERS[name], **options)
