"""The families that the golden tests cover, and the table of them in `docs/models.md`.

`python tests/golden/zoo.py` writes the table; a test fails while it is not up to date.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- families: written by tests/golden/zoo.py -->\n", "<!-- end of families -->"

#: What runs a model, the fastest first.
ALL = ("native", "torch", "transformers")
TORCH = ("torch", "transformers")
OURS = ("native", "torch")
FOREIGN = ("transformers",)


@dataclass(frozen=True, slots=True)
class Entry:
    """A family, and the tiny models that stand for it."""

    title: str
    model_type: str
    #: By the names of `tiny_models`: what must run each.
    models: dict[str, tuple[str, ...]]
    #: What these models have between them.
    features: str


ZOO = (
    Entry(
        "Llama 2 and 3, SmolLM, SmolLM2",
        "llama",
        {
            "llama": ALL,
            "llama-biases-tied": ALL,
            "llama3-rope": ALL,
            "llama-linear-rope": ALL,
            "llama-yarn": ALL,
        },
        "shared heads of keys, biases, tied embeddings, Llama 3, linear and YaRN rotary scaling",
    ),
    Entry(
        "Qwen2, Qwen2.5", "qwen2", {"qwen2": ALL, "qwen2-window": ALL}, "biases, upper layers slide"
    ),
    Entry("Qwen3", "qwen3", {"qwen3-tied": ALL, "qwen3-odd": TORCH}, "norms of queries and keys"),
    Entry(
        "Qwen2-MoE",
        "qwen2_moe",
        {"qwen2-moe": ALL},
        "experts and a shared one, dense layers between, windows",
    ),
    Entry("Qwen3-MoE", "qwen3_moe", {"qwen3-moe": ALL}, "experts in every other layer"),
    Entry(
        "Mistral",
        "mistral",
        {"mistral-window": ALL, "mistral-no-window": ALL},
        "with and without sliding window",
    ),
    Entry(
        "Mistral Small 3, Ministral 3, with pictures",
        "mistral3",
        {"mistral3": ALL, "ministral3-pictures": ALL},
        "what Mistral has, of a model that sees; text only",
    ),
    Entry("Ministral 3", "ministral3", {"ministral3": ALL}, "YaRN, up to the original context"),
    Entry("Mixtral", "mixtral", {"mixtral": ALL}, "experts"),
    Entry("Gemma", "gemma", {"gemma": ALL}, "scaled embeddings, GELU gate"),
    Entry(
        "Gemma 2",
        "gemma2",
        {"gemma2": ALL},
        "soft caps, sliding and global layers, norms on both sides",
    ),
    Entry(
        "Gemma 3, text only",
        "gemma3_text",
        {"gemma3": ALL},
        "two kinds of rotary embeddings, sliding and global layers",
    ),
    Entry(
        "Gemma 3, with pictures",
        "gemma3",
        {"gemma3-pictures": ALL},
        "the same, of a model that sees; text only",
    ),
    Entry(
        "Phi-1, Phi-2",
        "phi",
        {"phi": ALL, "phi-tied": ALL},
        "parallel layers that share a norm, half rotary",
    ),
    Entry(
        "Phi-3, Phi-4",
        "phi3",
        {"phi3-window": ALL, "phi3-longrope": ALL},
        "fused projections, sliding window, partial rotary, LongRoPE up to the original context",
    ),
    Entry("OLMo 2", "olmo2", {"olmo2": ALL}, "norms at the outputs, over whole projections"),
    Entry(
        "OLMo 3",
        "olmo3",
        {"olmo3": ALL},
        "the same, sliding and global layers with rotary embeddings of their own, YaRN",
    ),
    Entry(
        "EXAONE 4",
        "exaone4",
        {"exaone4": ALL, "exaone4-global": ALL},
        "norms at the outputs, sliding layers and global ones without rotary embeddings",
    ),
    Entry("GPT-2", "gpt2", {"gpt2": ALL}, "learned positions, transposed weights"),
    Entry(
        "GPT-NeoX, Pythia",
        "gpt_neox",
        {"gpt-neox": ALL, "gpt-neox-in-a-row": ALL},
        "parallel layers or not, partial rotary",
    ),
    Entry(
        "Falcon",
        "falcon",
        {
            "falcon": OURS,
            "falcon-groups": OURS,
            "falcon-in-a-row": OURS,
        },
        "one head of keys, groups, or as many as queries; no ALiBi",
    ),
    Entry("StarCoder2", "starcoder2", {"starcoder2": ALL}, "layer norms, sliding window"),
    Entry("Granite", "granite", {"granite": ALL}, "four multipliers"),
    Entry(
        "GPT-OSS",
        "gpt_oss",
        {"gpt-oss": ALL},
        "attention with sinks, sliding and global layers, YaRN, experts with biases and bounds",
    ),
    Entry("SmolLM3", "smollm3", {"smollm3": ALL}, "layers without rotary embeddings"),
    Entry("Seed-OSS", "seed_oss", {"seed-oss": ALL}, "biases of queries, keys and values"),
    Entry(
        "GLM-4 (2024)",
        "glm",
        {"glm": ALL},
        "fused projections, half rotary, of elements side by side",
    ),
    Entry("GLM-4 (2025)", "glm4", {"glm4": ALL}, "the same, norms on both sides"),
    Entry("ERNIE 4.5", "ernie4_5", {"ernie4-5": ALL}, "rotary of elements side by side"),
    Entry(
        "Command R",
        "cohere",
        {"cohere": ALL},
        "parallel gated layers that share a norm without biases; no norms of queries and keys",
    ),
    Entry(
        "Command R7B, Command A",
        "cohere2",
        {"cohere2": ALL},
        "the same, sliding layers and global ones without rotary embeddings",
    ),
    Entry("OPT", "opt", {"opt": FOREIGN}, "learned positions"),
    Entry(
        "Qwen3.5", "qwen3_5", {"qwen3-5": FOREIGN}, "gated delta rule in three of four layers; text"
    ),
    Entry("Qwen3-Next", "qwen3_next", {"qwen3-next": FOREIGN}, "the same, routed experts"),
    Entry("OLMo hybrid", "olmo_hybrid", {"olmo-hybrid": FOREIGN}, "gated delta rule"),
    Entry("LFM2", "lfm2", {"lfm2": FOREIGN}, "short convolutions"),
    Entry("Granite 4", "granitemoehybrid", {"granite-4": FOREIGN}, "Mamba-2 and attention"),
    Entry("Falcon-H1", "falcon_h1", {"falcon-h1": FOREIGN}, "Mamba-2 and attention in one layer"),
    Entry("Nemotron-H", "nemotron_h", {"nemotron-h": FOREIGN}, "Mamba-2, attention or neither"),
    Entry("Mamba-2", "mamba2", {"mamba2": FOREIGN}, "no attention at all"),
    Entry("Qwen2.5-VL", "qwen2_5_vl", {"qwen2-5-vl": FOREIGN}, "text only"),
    Entry("Qwen3-VL", "qwen3_vl", {"qwen3-vl": FOREIGN}, "text only"),
    Entry(
        "DeepSeek-V3", "deepseek_v3", {"deepseek-v3": FOREIGN}, "latent attention, routed experts"
    ),
)


def table() -> str:
    """Markdown, one row for each family."""
    lines = [
        "| family | `model_type` | our decoders | Transformers' code | the tests cover |",
        "|---|---|---|---|---|",
    ]
    for entry in ZOO:
        runs = {impl for impls in entry.models.values() for impl in impls}
        ours = ", ".join(f"`{impl}`" for impl in ALL[:2] if impl in runs) or "no"
        theirs = "yes" if "transformers" in runs else "no"
        cells = (entry.title, f"`{entry.model_type}`", ours, theirs, entry.features)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def updated(text: str) -> str:
    """The document with the table as it should be."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    before = DOCUMENT.read_text(encoding="utf-8")
    if (after := updated(before)) != before:  # tests may read it meanwhile
        DOCUMENT.write_text(after, encoding="utf-8")
