# fqfuse as a program: `docker build -t fqfuse .`, then
# `docker run --rm -v "$PWD:/data" fqfuse inspect model.onnx`. On x86-64 with oneDNN, elsewhere NumPy runs the plans.
FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
# the kernels in C, which an image without a compiler does without
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
# libgomp: OpenMP, which oneDNN computes with
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN wheel=$(echo /wheels/fqfuse-*.whl) && python -m pip install --no-cache-dir "$wheel[onednn,batch]" && rm -rf /wheels \
    && useradd --create-home --uid 10001 fqfuse && mkdir /data && chown fqfuse /data
USER fqfuse
WORKDIR /data
ENTRYPOINT ["fqfuse"]
CMD ["--help"]
