# The Resift server with its default models inside: docker build -t resift . && docker run -p 127.0.0.1:8787:8787 resift
# The container runs as a user without rights, with a read-only file system, and downloads nothing.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements/constraints.txt requirements/
RUN python -m venv /opt/resift
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY tools ./tools
COPY src ./src
RUN /opt/resift/bin/pip install --no-cache-dir -c requirements/constraints.txt ".[server,local]" \
    && /opt/resift/bin/python -m compileall -q /opt/resift/lib \
    && /opt/resift/bin/python -c "import resift; print(resift.rerank('red fox', ['a whale', 'a red fox'])[0].text)"

FROM python:${PYTHON}-slim
COPY --from=build /opt/resift /opt/resift
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin resift && mkdir /data && chown 10001:10001 /data
ENV PATH=/opt/resift/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HF_HUB_OFFLINE=1
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8787
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8787/readyz', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["resift"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8787", "--any-model", "--drain-delay", "5"]
