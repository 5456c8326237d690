"""What a draft model brings: `python -m bench.speculation`.

Each pair of a model and a draft model serves the same greedy requests with and without its draft,
turn and turn about in one process; so many streams run at a time, and others wait. Printed are the
share of guesses that were right, guesses per token of the answers, and how many times as fast the
whole was. `--ngram N` measures prompt lookup beside it.

`--identity N` compares the answers to N prompts instead, token by token: without a draft model one
after the other, and with it in a crowd, at random arrivals, over a cache so small that sequences
are preempted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.draft_pairs import Pair, first_layers, random_pair
from bench.models import model_folder
from bench.report import machine, print_machine
from bench.settings import engine_options
from streamwell.core.engine_state import EngineStats
from streamwell.core.types import GenerateRequest, SamplingParams
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.draft_cost import DraftCost
from streamwell.engine.drafter import Drafter, NgramDrafter
from streamwell.engine.loader import LoadedModel, load
from streamwell.engine.loop import EngineLoop
from streamwell.engine.messages import Add, EngineConfig
from streamwell.engine.scheduler import Scheduler
from streamwell.models import brooklet_path
from training.brooklet.cases import make_cases
from training.brooklet.tokenizer import load_tokenizer

MAX_MODEL_LEN, CROWD, BUDGET = 512, 16, 256
PROMPT_TOKENS, NEW_TOKENS = 64, 96
#: Name: how much the layers above the draft's add.
AGREEMENTS = {"high agreement": 0.1, "middling agreement": 0.2, "low agreement": 0.5}


@dataclass(frozen=True, slots=True)
class Served:
    """What a load came to."""

    tokens: dict[str, list[int]]
    seconds: float
    #: Processor time: on a busy machine with one thread it says more.
    cpu_seconds: float
    stats: EngineStats


def load_pair(pair: Pair, precision: str, num_threads: int | None = None) -> LoadedModel:
    """The model with its draft model."""
    config = EngineConfig(
        model_path=str(pair.target),
        device="cpu",
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=CROWD,
        max_num_batched_tokens=BUDGET,
        kv_cache_bytes=None,
        block_size=16,
        num_threads=num_threads,
        speculative_model=str(pair.draft),
        **engine_options(precision),
    )
    return load(config, lambda _stage, _progress: None)


def serve(
    model: LoadedModel,
    requests: Sequence[GenerateRequest],
    drafter: Drafter | None,
    num_tokens: int,
    *,
    streams: int,
    num_blocks: int | None = None,
    rng: Random | None = None,
    cost: DraftCost | None = None,
) -> Served:
    """Serve requests in a fresh engine, so many at a time; with `rng` they come at random steps."""
    pool = BlockPool(num_blocks or model.info.num_blocks, model.info.block_size)
    scheduler = Scheduler(
        pool,
        max_num_seqs=streams,
        max_num_batched_tokens=BUDGET,
        max_model_len=MAX_MODEL_LEN,
        eos_token_ids=model.eos_token_ids,
        num_speculative_tokens=num_tokens if drafter else 0,
    )
    loop = EngineLoop(scheduler, model.runner, pool, drafter=drafter, draft_cost=cost)
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    todo = list(requests)
    started, cpu_started = time.perf_counter(), time.process_time()
    while todo or loop.has_work:
        while todo and (rng is None or rng.random() < 0.5):
            loop.handle(Add(todo.pop(0)))
        for output in loop.step():
            if output.error is not None:
                raise RuntimeError(output.error)
            tokens[output.request_id] += output.token_ids
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return Served(tokens, seconds, cpu_seconds, loop.stats())


def count_differences(
    model: LoadedModel, requests: Sequence[GenerateRequest], num_tokens: int, rng: Random
) -> tuple[int, EngineStats]:
    """How many answers differ between one by one without guesses, and in a crowd with guesses."""
    plain = serve(model, requests, None, 0, streams=1)
    crowd = serve(
        model,
        requests,
        model.drafter,
        num_tokens,
        streams=CROWD,
        num_blocks=2 * MAX_MODEL_LEN // model.info.block_size,  # two of the longest sequences
        rng=rng,
    )
    differences = sum(plain.tokens[name] != tokens for name, tokens in crowd.tokens.items())
    return differences, crowd.stats


def random_requests(model: LoadedModel, count: int, rng: Random) -> Iterator[GenerateRequest]:
    """Greedy requests of random prompts; all answers have the same length."""
    sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    for index in range(count):
        prompt = tuple(rng.randrange(3, model.info.vocab_size) for _ in range(PROMPT_TOKENS))
        yield GenerateRequest(request_id=str(index), prompt_ids=prompt, sampling=sampling)


def brooklet_requests(count: int, rng: Random) -> Iterator[GenerateRequest]:
    """Greedy requests of conversations that the model in the box was not trained on."""
    tokenizer = load_tokenizer(brooklet_path())
    sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0)
    for index, case in enumerate(rng.choices(make_cases(rng, 24), k=count)):
        ids = tokenizer.apply_chat_template(
            case.messages, tools=case.tools, add_generation_prompt=True, return_dict=False
        )[-MAX_MODEL_LEN + NEW_TOKENS :]
        yield GenerateRequest(request_id=str(index), prompt_ids=tuple(ids), sampling=sampling)


def brooklet_pairs(out: Path) -> list[Pair]:
    """A trained model with drafts that were not: its own first layers, and itself."""
    folder = brooklet_path()
    pairs = [first_layers(f"brooklet, {n} of 8 layers", folder, out, n) for n in (1, 4, 7)]
    return [*pairs, Pair("brooklet, itself", folder, folder)]


def measure(
    pair: Pair,
    model: LoadedModel,
    requests: list[GenerateRequest],
    streams: int,
    arguments: argparse.Namespace,
) -> None:
    """Print a row for a pair and a number of streams, for each way to guess.

    Raises:
        RuntimeError: an answer is not the same.
    """
    drafters: dict[str, tuple[Drafter | None, int]] = {"none": (None, 0)}
    drafters["model"] = model.drafter, arguments.tokens
    if arguments.ngram:
        drafters["ngram"] = NgramDrafter(), arguments.ngram
    served: dict[str, list[Served]] = {name: [] for name in drafters}
    for _ in range(arguments.rounds):
        for name, (drafter, num_tokens) in drafters.items():
            cost = DraftCost() if drafter else None
            run = serve(model, requests, drafter, num_tokens, streams=streams, cost=cost)
            served[name].append(run)
    plain = served.pop("none")
    num_tokens = sum(map(len, plain[0].tokens.values()))
    speed = num_tokens / statistics.median(run.seconds for run in plain)
    for name, runs in served.items():
        if any(run.tokens != plain[0].tokens for run in runs):
            raise RuntimeError(f"{pair.name}: {name} changed an answer")
        guessed = statistics.median(run.stats.num_draft_tokens for run in runs)
        right = statistics.median(run.stats.num_accepted_tokens for run in runs)
        faster = statistics.median(a.seconds / b.seconds for a, b in zip(plain, runs, strict=True))
        less = statistics.median(
            a.cpu_seconds / b.cpu_seconds for a, b in zip(plain, runs, strict=True)
        )
        print(
            f"{pair.name:28}{name:8}{streams:8}{speed:14.1f}{100 * right / max(1, guessed):10.0f} %"
            f"{guessed / num_tokens:20.2f}{faster:12.2f}{less:16.2f}",
            flush=True,
        )


def main() -> None:
    """Measure, or compare answers."""
    arguments = _parse()
    print_machine(machine() | {"model": arguments.model, "precision": arguments.precision})
    with tempfile.TemporaryDirectory() as scratch:
        pairs = _pairs(Path(scratch), arguments)
        if arguments.identity:
            _compare(pairs, arguments)
        else:
            _measure(pairs, arguments)


def _measure(pairs: Iterator[Pair], arguments: argparse.Namespace) -> None:
    print(
        f"{'pair':28}{'guesses':8}{'streams':>8}{'tok/s without':>14}{'right':>12}"
        f"{'guesses per token':>20}{'faster':>12}{'by CPU time':>16}"
    )
    for pair in pairs:
        model = load_pair(pair, arguments.precision, arguments.threads)
        for streams in arguments.streams:
            requests = _requests(model, arguments.requests * streams, arguments)
            measure(pair, model, requests, streams, arguments)


def _compare(pairs: Iterator[Pair], arguments: argparse.Namespace) -> None:
    """Print how many answers differ, per pair."""
    print(f"{'pair':28}{'prompts':>8}{'differ':>8}{'guessed':>10}{'right':>8}{'preempted':>12}")
    for pair in pairs:
        model = load_pair(pair, arguments.precision, arguments.threads)
        requests = _requests(model, arguments.identity, arguments)
        differences, stats = count_differences(model, requests, arguments.tokens, Random(0))
        print(
            f"{pair.name:28}{len(requests):8}{differences:8}{stats.num_draft_tokens:10}"
            f"{stats.num_accepted_tokens:8}{stats.num_preemptions:12}",
            flush=True,
        )


def _pairs(scratch: Path, arguments: argparse.Namespace) -> Iterator[Pair]:
    if arguments.model == "brooklet":
        yield from brooklet_pairs(scratch)
        return
    folder = model_folder(arguments.model)
    factors = [arguments.factor] if arguments.factor else AGREEMENTS.values()
    for factor in factors:
        names = (name for name, known in AGREEMENTS.items() if known == factor)
        yield random_pair(
            next(names, f"factor {factor}"),
            folder,
            scratch,
            num_layers=arguments.layers,
            factor=factor,
            vocab_size=arguments.vocab,
        )


def _requests(
    model: LoadedModel, count: int, arguments: argparse.Namespace
) -> list[GenerateRequest]:
    is_brooklet, rng = arguments.model == "brooklet", Random(1)
    return list(
        brooklet_requests(count, rng) if is_brooklet else random_requests(model, count, rng)
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.speculation", description=__doc__)
    parser.add_argument("--model", default="qwen05", help="`brooklet`, or one of bench.models")
    parser.add_argument("--precision", default="auto", help="auto, float32, bfloat16 or int8")
    parser.add_argument("--layers", type=int, default=2, help="of the draft model")
    parser.add_argument("--vocab", type=int, default=16000, help="tokens that are kept")
    parser.add_argument("--factor", type=float, help="of what the other layers add; default: three")
    parser.add_argument("--tokens", type=int, default=4, help="guesses per step, at most")
    parser.add_argument("--ngram", type=int, default=0, help="the same for prompt lookup; 0: not")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--requests", type=int, default=3, help="per stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="default: as the engine chooses")
    parser.add_argument("--identity", type=int, default=0, help="compare so many answers instead")
    return parser.parse_args()


if __name__ == "__main__":
    main()
