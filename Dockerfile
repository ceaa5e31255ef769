# Attention Lab for a public host, such as a Space with "sdk: docker":
#   docker build -t attention-lab . && docker run -p 7860:7860 -v attention-lab:/data attention-lab
FROM python:3.11-slim

# PyTorch's own index has a build without CUDA, a tenth of the size; its version is the one in requirements.txt.
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu "torch==2.13.0+cpu" \
    && pip install --no-cache-dir -r requirements.txt

# No root rights are needed; a Space runs as user 1000.
RUN useradd --uid 1000 --create-home lab && mkdir /data && chown lab /data
COPY --chown=root:root . .
USER lab

ENV PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 ATTENTION_LAB_PUBLIC=1
EXPOSE 7860
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7860/health', timeout=4)"]

# Runs outlive the container if /data is writable, and are lost with it otherwise. exec: SIGTERM reaches Python.
CMD ["sh", "-c", "\
    if [ -w /data ]; then export ATTENTION_LAB_CHECKPOINTS=/data/checkpoints; \
    else export ATTENTION_LAB_CHECKPOINTS=/home/lab/checkpoints; fi; \
    mkdir -p $ATTENTION_LAB_CHECKPOINTS; \
    exec python app.py --host 0.0.0.0 --port 7860"]
