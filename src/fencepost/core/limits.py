"""Every bound of the system in one place (C27), with the relations between them.

Sizes are bytes, times microseconds, counts plain numbers. A bound says in its comment whether reaching it is
allowed: "at most" is inclusive everywhere. The seed's own numbers are first values and are compared by a test.
"""

from __future__ import annotations

import msgspec

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
LEASE_MAX_US = 30 * MINUTE_US  # no history holds a longer one
TEXT_CHARACTERS_MAX = 4_096  # nor a longer message, note or reason
ANSWER_CHARACTERS_MAX = 65_536  # nor a longer answer
PAYLOAD_BYTES_MAX = 16 * 2**20  # that a running program can send or be sent at once; the protocol's own, by a test
NOTE_BYTES_MAX = 256  # of a heartbeat's note as the state keeps it


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """First values of all bounds. `check()` returns the relations that do not hold, none for the first values."""

    # Records and commands
    record_bytes_max: int = 4 * 2**20
    command_bytes_max: int = 16 * 2**20
    batch_records_max: int = 40_000
    group_commands_max: int = 256
    group_records_max: int = 40_000
    text_bytes_max: int = 4_096  # of a message, note or reason that is kept in a record
    checkpoint_interval_records: int = 1_000  # signed anchors in the safety ledger

    # Plans
    plan_orders_max: int = 10_000
    plan_edges_max: int = 200_000  # members of all groups together
    duration_max_us: int = 365 * DAY_US  # of an attempt, a deadline from now, a measured duration
    submit_many_max: int = 1_000
    name_open_plans_max: int = 64  # open plans of one name

    # Paging and fan-out
    fanout_per_batch: int = 256  # dependents told in one batch
    cancel_per_batch: int = 256
    page_max: int = 1_000
    reserve_next_max: int = 64

    # Time: seed C2 says that no claim lasts longer than 30 minutes
    lease_us: int = 10 * SECOND_US
    lease_max_us: int = LEASE_MAX_US
    renewal_us: int = 3 * SECOND_US
    reservation_us: int = 5 * SECOND_US
    clock_resolution_us: int = 250_000
    clock_skew_max_us: int = 2 * SECOND_US
    attempt_time_us: int = 10 * MINUTE_US
    collect_us: int = 5 * MINUTE_US  # that a lease may outlast the attempt's time, to collect and report
    keep_failed_us: int = 7 * DAY_US

    # Attempts
    attempts: int = 3
    yields_max: int = 1_000
    backoff_max_us: int = HOUR_US
    jitter_ppm_max: int = 100_000  # a backoff is lengthened by at most a tenth
    late_records_per_attempt: int = 16
    checkpoint_bytes_max: int = 16 * 2**20  # of a payload
    checkpoints_per_order_max: int = 100_000
    artifacts_per_checkpoint_max: int = 1_000
    artifacts_per_attempt_max: int = 1_000  # kept while it runs, beside those of its result
    charges_per_attempt_max: int = 100_000  # receipts that a running program names
    children_max: int = 256  # of one order
    children_depth_max: int = 3  # orders above a child, the outermost included
    answer_bytes_max: int = 65_536
    renewal_attempts_max: int = 1_000
    artifacts_per_result_max: int = 10_000
    receipts_per_result_max: int = 1_000
    receipts_per_hold_max: int = 4_000  # late ones included
    receipt_name_bytes_max: int = 512  # provider and receipt together, as they stand in a record

    def check(self) -> list[str]:
        """Return the broken relations in words; empty when all hold."""
        relations = {
            "renewal_us is at most half of lease_us (C8)": self.renewal_us * 2 <= self.lease_us,
            "lease_us is at most lease_max_us (C2)": self.lease_us <= self.lease_max_us <= LEASE_MAX_US,
            "a hold books every receipt of a result": self.receipts_per_result_max < self.receipts_per_hold_max,
            "the receipts of a hold fill at most half of a record": (
                self.receipts_per_hold_max * (self.receipt_name_bytes_max + 8) * 2 <= self.record_bytes_max
            ),
            "clock_resolution_us is at most a tenth of reservation_us": (
                self.clock_resolution_us * 10 <= self.reservation_us
            ),
            "a plan fits in one batch": self.plan_orders_max * 3 + 100 <= self.batch_records_max,
            "a group holds the largest batch": self.batch_records_max <= self.group_records_max,
            "a page of cancels fits in one batch, with the dependents that it tells": (
                (self.cancel_per_batch + self.fanout_per_batch) * 6 + 100 <= self.batch_records_max
            ),
            "a record fits in a command": self.record_bytes_max <= self.command_bytes_max,
            "a program can send the payload of a checkpoint and read it again": (
                self.checkpoint_bytes_max <= PAYLOAD_BYTES_MAX
            ),
            "a text fits in its record": self.text_bytes_max <= TEXT_CHARACTERS_MAX,
            "an answer fits in its record": self.answer_bytes_max <= ANSWER_CHARACTERS_MAX,
        }
        return [relation for relation, holds in relations.items() if not holds]


FIRST_VALUES = Limits()
