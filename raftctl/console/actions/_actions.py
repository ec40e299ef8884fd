"""All actions by their names, and the line that each leaves in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.console.actions import _access, _cluster, _groups, _topics
from raftctl.console.actions._plan import Acting
from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from raftctl.console.actions._plan import Plan
    from raftctl.console.brokers import Brokers, BrokerViews
    from raftctl.console.http import Asked
    from raftctl.http_json import Fields

ACTIONS: Mapping[str, Callable[[Acting, Fields], Plan]] = {
    "create-topic": _topics.create_topic,
    "delete-topic": _topics.delete_topic,
    "create-partitions": _topics.create_partitions,
    "delete-records": _topics.delete_records,
    "elect-leaders": _topics.elect_leaders,
    "reassign": _topics.reassign,
    "cancel-reassignment": _topics.cancel_reassignment,
    "reset-offsets": _groups.reset_offsets,
    "delete-group": _groups.delete_group,
    "remove-member": _groups.remove_member,
    "create-acl": _access.create_acl,
    "delete-acl": _access.delete_acl,
    "alter-quota": _access.alter_quota,
    "alter-configs": _cluster.alter_configs,
    "abort-transaction": _cluster.abort_transaction,
    "unregister-broker": _cluster.unregister_broker,
}
SUBJECT_MAX = 1_000
"""Characters of a subject in the log."""


class Actions:
    """Has actions done as their requesters."""

    def __init__(self, brokers: Brokers, views: BrokerViews, log: FilteringBoundLogger) -> None:
        self._brokers = brokers
        self._views = views
        self._log = log

    async def act(self, asked: Asked) -> dict[str, Any]:
        """Do the action that the path names; return a sentence on what was done."""
        name = asked.named["action"]
        read = ACTIONS.get(name)
        if read is None:
            why = f"there is no action {name:.50}: choose one of {', '.join(ACTIONS)}"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, why)
        plan = read(Acting(self._brokers, self._views, asked.rights), asked.fields)
        asked.fields.end()
        result = ErrorCode.UNKNOWN_SERVER_ERROR.name
        try:
            done = await plan.carry_out()
            result = ErrorCode.NONE.name
        except KafkaError as error:
            result = error.code.name
            raise
        except BadFieldError:
            result = ErrorCode.INVALID_REQUEST.name
            raise
        finally:
            # Also of one that ends in the middle: it may have been done.
            principal, host = asked.requester
            self._log.info(
                "console_action",
                principal=str(principal),
                host=host,
                action=name,
                subject=plan.subject[:SUBJECT_MAX],
                result=result,
            )
        return {"done": done}
