"""What a server was told reaches the engine's process."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from streamwell.core.engine_state import EngineInfo
from streamwell.engine.messages import EngineConfig, usual_tokens_per_step
from streamwell.settings import Settings
from streamwell.wiring.engines import engine_config

INFO = EngineInfo(
    max_model_len=20, vocab_size=9, num_blocks=9, block_size=4, dtype="float32", device="cpu"
)


def test_settings_reach_the_engine_under_their_names() -> None:
    """Each that both have is there with its value; a draft's folder is known only when resolved."""
    told = {
        "device": "cpu",
        "dtype": "float32",
        "model_impl": "torch",
        "trust_remote_code": True,
        "speculative_ngram": 3,
        "max_model_len": 77,
        "max_num_seqs": 5,
        "max_num_batched_tokens": 99,
        "block_size": 8,
        "num_threads": 3,
        "quantization": "int8",
        "step_stretch": 3.5,
        "short_step_s": 0.7,
        "enable_prefix_caching": False,
        "speculative_tokens": 2,
        "enable_lora": True,
        "max_loras": 3,
        "max_lora_rank": 4,
        "cuda_graphs": False,
    }
    config = engine_config(Settings(**told), Path("model"), None, None)  # type: ignore[arg-type]

    compiling = engine_config(Settings(compile=True), Path("model"), None, None)

    assert compiling.compile  # not with adapters
    settings = {field.name for field in fields(Settings)} - {"speculative_model", "compile"}
    assert settings & set(EngineConfig.__struct_fields__) == told.keys()
    assert told == {name: getattr(config, name) for name in told}


def test_a_step_has_as_many_tokens_as_what_runs_the_model_is_good_for() -> None:
    """What is said counts; what is not leaves room for each sequence."""
    usual = [
        usual_tokens_per_step(replace(INFO, device=device, implementation=implementation))
        for device, implementation in (
            ("cpu", "native/avx512"),
            ("cpu", "torch"),
            ("cuda:0", "torch"),
            ("cuda:1", "torch/triton"),
        )
    ]

    def tokens_per_step(**settings: int) -> int:
        config = engine_config(Settings(**settings), Path("model"), None, None)  # type: ignore[arg-type]
        return config.tokens_per_step(256)

    assert [256, 256, 2048, 8192] == usual
    assert 256 == tokens_per_step()
    assert 1000 == tokens_per_step(max_num_seqs=1000)
    assert 99 == tokens_per_step(max_num_batched_tokens=99)
