# One image for every role: certificates, coordinator, zone, dashboard (docker-compose.yml).
#
#   docker build -t marl-sched .
#
# BASE_IMAGE    any slim Debian with Python 3.11 or newer and its venv module
# TORCH_INDEX   an index that has the CPU build of PyTorch; empty: pip's own settings alone
#
# Behind a proxy, or without a way to the default indexes: pip reads the secrets `pip_conf` (a
# pip.conf) and `ca_bundle` (PEM, at /run/secrets/ca_bundle), and takes wheels that lie in wheels/.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
# The environment stands where it will run, without a pip of its own.
RUN python3 -m venv --without-pip /opt/marl-sched && python3 -m venv /opt/pip
WORKDIR /src

# Dependencies are a layer of their own, made anew only when one of these files changes. The pattern
# lets wheels/ be missing; what is in it lands beside the files.
COPY pyproject.toml constraints.txt wheel[s] ./
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_bundle,target=/run/secrets/ca_bundle \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -c 'import tomllib; f = open("pyproject.toml", "rb"); print(*tomllib.load(f)["project"]["dependencies"], sep="\n")' >requirements.txt && \
    /opt/pip/bin/pip --python /opt/marl-sched/bin/python install --find-links . \
      ${TORCH_INDEX:+--extra-index-url "${TORCH_INDEX}"} \
      --requirement requirements.txt --constraint constraints.txt && \
    rm -f -- *.whl
# What nothing at run time reads: headers, tests, and uv, by which Flower would install packages.
RUN cd /opt/marl-sched && \
    rm -rf lib/python3*/site-packages/torch/include lib/python3*/site-packages/torch/share \
      bin/uv bin/uvx && \
    find lib/python3*/site-packages/torch/bin -type f ! -name torch_shm_manager -delete && \
    find lib -type d \( -name tests -o -name test \) -path '*/site-packages/*' \
      \( -path '*/numpy/*' -o -path '*/numba/*' -o -path '*/matplotlib/*' -o -path '*/mpl_toolkits/*' \
      -o -path '*/sympy/*' -o -path '*/networkx/*' -o -path '*/torch/test' \) \
      -prune -exec rm -rf {} +

COPY README.md LICENSE NOTICE ./
COPY marl_sched marl_sched
COPY zones zones
COPY federation federation
COPY dashboard dashboard
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_bundle,target=/run/secrets/ca_bundle \
    --mount=type=cache,target=/root/.cache/pip \
    /opt/pip/bin/pip --python /opt/marl-sched/bin/python install --no-deps .

# Kernels for any x86-64 or ARM64. They are known by their sources' times, of which an image keeps
# whole seconds.
ENV NUMBA_CPU_NAME=generic MARL_SCHED_KERNEL_CACHE=/opt/marl-sched/kernels \
    FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
RUN find /opt/marl-sched/lib/python3*/site-packages/marl_sched -path '*/kernels/*.py' \
      -exec sh -c 'for f; do touch -d "@$(stat -c %Y "$f")" "$f"; done' sh {} + && \
    /opt/marl-sched/bin/marl-sched compile

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title=marl-sched \
      org.opencontainers.image.licenses=Apache-2.0
# Volumes that are mounted here for the first time take over the owner.
RUN groupadd --gid 10001 marl && \
    useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin marl && \
    install -d -o marl -g marl -m 0700 /srv/pki /srv/join /srv/zone && \
    install -d -o marl -g marl -m 0755 /srv/run
COPY --from=build /opt/marl-sched /opt/marl-sched
ENV PATH=/opt/marl-sched/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CPU_NAME=generic \
    MARL_SCHED_KERNEL_CACHE=/opt/marl-sched/kernels \
    MPLCONFIGDIR=/tmp/matplotlib \
    FLWR_HOME=/tmp/flwr \
    FLWR_TELEMETRY_ENABLED=0 \
    FLWR_DISABLE_UPDATE_CHECK=1 \
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
USER 10001:10001
WORKDIR /srv
ENTRYPOINT ["marl-sched"]
CMD ["--help"]
