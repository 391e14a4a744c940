"""All formats of raw traces by name, in the order of the documentation."""

from marl_sched.workload.traces import (
    alibaba_v2017,
    alibaba_v2018,
    alibaba_v2020,
    azure_packing,
    columns,
    google_2011,
    openb,
    spar,
    spar_stats,
    swf,
)
from marl_sched.workload.traces.formats import Format

FORMATS: dict[str, Format] = {
    found.name: found
    for found in (
        alibaba_v2018.FORMAT,
        spar.FORMAT,
        spar_stats.FORMAT,
        alibaba_v2017.FORMAT,
        alibaba_v2020.FORMAT,
        openb.FORMAT,
        google_2011.FORMAT,
        azure_packing.FORMAT,
        swf.FORMAT,
        columns.FORMAT,
    )
}
