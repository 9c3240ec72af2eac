# A small image for sandboxes: the programs below and what they need, and nothing else. It has no package
# manager and, unless asked for, no shell.
#
#   docker build -t brig-python -f docker/sandbox.Dockerfile docker
#
# --build-arg BASE=IMAGE       based on Debian, with Python and whatever PROGRAMS names
# --build-arg PROGRAMS="…"     what there is to start
# --build-arg WITH_SHELL=bash  a shell beside them
#
# Without a registry: scripts/build-image.
ARG BASE=python:3.13-slim
FROM ${BASE} AS whole
ARG PROGRAMS="python3 cat echo env false ls sleep true"
ARG WITH_SHELL=""
USER 0
COPY trim.py /trim.py
RUN python3 /trim.py /trimmed ${PROGRAMS} ${WITH_SHELL}

# From nothing: what was left out is in no layer either.
FROM scratch
COPY --from=whole /trimmed /
ENV PATH=/usr/local/bin:/usr/bin LANG=C.UTF-8
USER 65534:65534
WORKDIR /workspace
CMD ["python3"]
