"""What only brokers know: configs, groups, transactions, records, sizes and ends of logs.

    BrokerViews   the views of the console that brokers answer
    BrokerLogs    sizes and ends of logs, for the views of topics
    Brokers       asks brokers as a requester: one, each, or the leaders of partitions
    Recent        answers that are kept for a moment, for all who look

Each question goes to the brokers as the requester, so they decide what the requester may see. What
was answered is kept for a second for the same requester. A broker that does not answer leaves its
part unknown, and the answer names it.

The package decides which brokers are asked what, and in which form it is shown. It must not know
how a broker is reached (`raftctl.plugins`), nor who may see what.

Invariants:

- No answer of a broker to one requester is shown to another.
- Lag, members and ends are asked for the rows of a window only.
- Nothing is asked that changes anything: not even an internal topic comes to be.
- Of a record's bytes no more is shown than was asked for, and no more is opened than is bounded.

Sources: KIP-518, KIP-848 (groups), KIP-664 (transactions), KIP-113, KIP-827 (log directories).
"""

from raftctl.console.brokers._brokers import (
    EARLIEST,
    GROUP_KEY,
    LATEST,
    TRANSACTION_KEY,
    Brokers,
    Partition,
    by_topic,
    check,
    error_code,
)
from raftctl.console.brokers._groups import no_group
from raftctl.console.brokers._logs import BrokerLogs
from raftctl.console.brokers._recent import Recent
from raftctl.console.brokers._views import BrokerViews

__all__ = [
    "EARLIEST",
    "GROUP_KEY",
    "LATEST",
    "TRANSACTION_KEY",
    "BrokerLogs",
    "BrokerViews",
    "Brokers",
    "Partition",
    "Recent",
    "by_topic",
    "check",
    "error_code",
    "no_group",
]
