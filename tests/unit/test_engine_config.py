"""What a server was told reaches the engine's process."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from streamwell.engine.messages import EngineConfig
from streamwell.settings import Settings
from streamwell.wiring.engines import engine_config


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


def test_a_step_has_as_many_tokens_as_its_device_is_good_for() -> None:
    """What is said counts; what is not leaves room for each sequence."""

    def tokens_per_step(**settings: int) -> list[int]:
        config = engine_config(Settings(**settings), Path("model"), None, None)  # type: ignore[arg-type]
        return [config.tokens_per_step(on_gpu=on_gpu) for on_gpu in (False, True)]

    assert [256, 8192] == tokens_per_step()
    assert [1000, 8192] == tokens_per_step(max_num_seqs=1000)
    assert [99, 99] == tokens_per_step(max_num_batched_tokens=99)
