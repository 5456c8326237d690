"""How large the KV cache is: what was asked for, or what there is room for."""

from __future__ import annotations

from dataclasses import dataclass

from streamwell.core.errors import LoadError
from streamwell.engine.messages import EngineConfig
from streamwell.models.memory import available_bytes

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CacheSize:
    """For sequences of one context each, or of two: an encoder's input has its own."""

    config: EngineConfig
    max_model_len: int
    num_contexts: int
    #: What a token takes in the cache of a draft model, beside the model's own.
    drafted_bytes: int
    is_in_main_memory: bool

    def check(self, bytes_per_token: int) -> None:
        """Whether a sequence finds room, if a token takes so many bytes: before it is allocated.

        Raises:
            LoadError: the cache that was given is too small; or none was, and this machine has too
                little memory for the smallest.
        """
        needed = self._blocks_per_seq * self._block_bytes(bytes_per_token)
        given = self.config.kv_cache_bytes
        if given is not None and given < needed:
            raise LoadError(
                f"a KV cache of {given} bytes cannot hold one sequence of {self.max_model_len} "
                f"tokens ({needed} bytes); give it more, or lower --max-model-len"
            )
        if given is None and self.is_in_main_memory and needed > (free := available_bytes()):
            raise LoadError(
                f"a sequence of {self.max_model_len} tokens takes {needed // _MIB} MiB of KV "
                f"cache, and {free // _MIB} MiB of memory are free; lower --max-model-len"
            )

    def num_seqs(self, state_bytes: int, default_bytes: int) -> int:
        """How many sequences may run, if each keeps a state of so many bytes.

        All of them together have half of the memory, the cache has the rest.
        """
        if not state_bytes:
            return self.config.max_num_seqs
        return max(
            1, min(self.config.max_num_seqs, self._given_or(default_bytes) // 2 // state_bytes)
        )

    def num_blocks(self, bytes_per_token: int, default_bytes: int, states_bytes: int = 0) -> int:
        """How many blocks it has; at most as many as can be used.

        `default_bytes` is the most that the cache takes when nothing is said, if a sequence fits
        into that; `states_bytes` of it are taken by the states of sequences.

        Raises:
            LoadError: see `check`.
        """
        self.check(bytes_per_token)
        num_bytes = self._given_or(default_bytes) - states_bytes
        wanted = self.config.max_num_seqs * self._blocks_per_seq
        num_blocks = min(wanted, num_bytes // self._block_bytes(bytes_per_token))
        return max(self._blocks_per_seq, num_blocks)

    def _given_or(self, default_bytes: int) -> int:
        given = self.config.kv_cache_bytes
        return default_bytes if given is None else given

    @property
    def _blocks_per_seq(self) -> int:
        return self.num_contexts * -(-self.max_model_len // self.config.block_size)

    def _block_bytes(self, bytes_per_token: int) -> int:
        # some models cache nothing of a token
        return max(1, bytes_per_token + self.drafted_bytes) * self.config.block_size
