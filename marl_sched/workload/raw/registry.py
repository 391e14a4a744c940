"""All formats of raw traces by name, in the order of the documentation."""

from marl_sched.workload.raw.alibaba import (
    alibaba_v2017,
    alibaba_v2018,
    alibaba_v2020,
    openb,
    spar,
    spar_stats,
)
from marl_sched.workload.raw.azure import azure_packing
from marl_sched.workload.raw.columns import columns
from marl_sched.workload.raw.formats import Format
from marl_sched.workload.raw.google import google_2011
from marl_sched.workload.raw.swf import swf

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
