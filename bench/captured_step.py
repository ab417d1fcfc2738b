"""GPT-2 124M, one greedy step captured as a CUDA graph: tokens per second. Needs a GPU."""

import torch

from cutaway.families import build
from cutaway.model.model import DecoderModel


def tokens_per_second(model: DecoderModel, batch: int, prompt: int, n: int, slots: int) -> float:
    cache = model.new_cache(batch, prompt + n).first(slots)
    token = torch.zeros(batch, 1, dtype=torch.long, device="cuda")

    def step() -> None:
        token.copy_(model(token, cache=cache).argmax(-1))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    times = []
    for _ in range(5):
        cache.clear()
        model(torch.zeros(batch, prompt, dtype=torch.long, device="cuda"), cache=cache)
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(n):
            graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / 1000)
    return batch * n / sorted(times)[2]


@torch.inference_mode()
def main() -> None:
    model = build("gpt2", seed=0, dtype=torch.bfloat16, device="cuda").eval()
    assert isinstance(model, DecoderModel)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16, 256 new tokens")
    for batch in (1, 64):
        for prompt, slots in ((32, 288), (32, 160)):
            n = 256 if slots == 288 else 128
            rate = tokens_per_second(model, batch, prompt, n, slots)
            print(
                f"batch {batch:3}  cache of {slots} slots  {rate:10,.0f} tokens/s  {batch / rate * 1e6:8.0f} µs a step"
            )


if __name__ == "__main__":
    main()
