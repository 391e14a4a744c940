"""Column numbers of the observation, for the kernel that writes it.

marl_sched/observation.py names the columns; a test holds the two together.
"""

(
    IS_MACHINE,
    IS_PEER,
    SPEED,
    PRICE,
    ALIGNMENT,
    ALLOCATION_GAP,
    EXPECTED_DURATION,
    EXPECTED_LATE,
    EXPECTED_SLACK,
    RUNNING,
    TAKES_LARGEST_SLOT,
    COST,
    DIGEST_AGE,
    SENT_SHARE,
    TRANSFER,
    FITS_LARGEST_SLOT,
) = range(16)
N_PLAIN_CANDIDATE = 16
# Blocks of R columns after the plain ones.
(
    FREE_SHARE,
    FREE_SHARE_AFTER,
    UTILIZATION,
    UTILIZATION_AFTER,
    UTILIZATION_MEAN,
    UTILIZATION_SD,
    IMBALANCE_CHANGE,
    RELATIVE_SIZE,
) = range(8)
N_CANDIDATE_BLOCKS = 8

(
    MEAN,
    SIGMA,
    WAITED,
    LATE_SLACK,
    FINISH_SLACK,
    HOPS_LEFT,
    RESTARTS,
    GROUP,
    JOB_LEFT,
    PRIORITY,
) = range(10)
N_PLAIN_INSTANCE = 10
REQUEST, USE = range(2)

QUEUE, SET_ASIDE, MACHINES_UP, MACHINE_CHOICES, PEER_CHOICES, ARRIVALS = range(6)
N_PLAIN_ZONE = 6
ZONE_FREE_SHARE, ZONE_UTILIZATION, ZONE_IMBALANCE, QUEUE_SHARE = range(4)
