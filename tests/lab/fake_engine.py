"""A small stand-in for the engine on lab hosts: prints lines of 0.5.9, answers its endpoints.

python3 fake_engine.py PORT FAULT [SECONDS-OF-LOADING]; FAULT is "none", or what goes wrong.
"""

import http.server
import json
import signal
import sys
import threading
import time

PORT, FAULT = int(sys.argv[1]), sys.argv[2]
LOADING = float(sys.argv[3]) if len(sys.argv) > 3 else 0.5
SAID = "How about the weather? "


def log(text, rank=""):
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"[{stamp}{' ' + rank if rank else ''}] {text}", flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, value=None):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200 if self.path == "/health" else 404)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if FAULT == "generation-hangs":
            time.sleep(3600)
        if FAULT == "dies-when-asked":
            log("Scheduler hit an exception: Traceback (most recent call last):", "TP1")
            print("torch.OutOfMemoryError: CUDA out of memory.", flush=True)
            import os

            os._exit(1)
        usage = {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}
        if self.path == "/v1/completions":
            choice = {"index": 0, "text": SAID, "finish_reason": "length"}
        else:
            call = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
            calls = [{"id": "c0", "type": "function", "function": call}]
            asked = bool(request.get("tools"))
            lost = FAULT == "tools-unparsed"
            message = {
                "role": "assistant",
                "content": None if asked and not lost else SAID,
                "reasoning_content": "17 + 25 = 42",
                "tool_calls": calls if asked and not lost else None,
            }
            finish = "tool_calls" if asked and not lost else "stop"
            choice = {"index": 0, "message": message, "finish_reason": finish}
        self.answer(200, {"choices": [choice], "usage": usage})


def load():
    ranks = ("TP0", "TP1")
    for rank in ranks:
        log("Init torch distributed begin.", rank)
        log("Init torch distributed ends. elapsed=0.07 s, mem usage=0.00 GB", rank)
        log("Load weight begin. avail mem=21.74 GB", rank)
    time.sleep(LOADING)
    if FAULT == "crash":
        print("Traceback (most recent call last):", flush=True)
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", flush=True)
        sys.exit(1)
    while FAULT == "hang":
        time.sleep(3600)
    for rank in ranks:
        log(
            "Load weight end. elapsed=0.05 s, type=LlamaForCausalLM, dtype=torch.bfloat16, "
            "avail mem=21.74 GB, mem usage=0.00 GB.",
            rank,
        )
        if FAULT == "silent-rank" and rank == "TP1":
            continue
        log("KV Cache is allocated. #tokens: 4096, K size: 0.00 GB, V size: 0.00 GB", rank)
        log("Memory pool end. avail mem=21.70 GB", rank)
        log(
            "max_total_num_tokens=4096, chunked_prefill_size=2048, max_prefill_tokens=16384, "
            "max_running_requests=2048, context_len=2048, available_cpu_mem=21.70 GB",
            rank,
        )


def main():
    load()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    server.daemon_threads = True
    signal.signal(
        signal.SIGTERM, lambda *a: threading.Thread(target=server.shutdown, daemon=True).start()
    )
    log(f"INFO:     Uvicorn running on http://127.0.0.1:{PORT} (Press CTRL+C to quit)")
    log("The server is fired up and ready to roll!")
    server.serve_forever()


main()
