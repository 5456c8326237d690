"""Feed-forward layers as the native helper reads them, and mixtures of such (`csrc/experts.h`)."""

from __future__ import annotations

from streamwell.engine.families import DecoderSpec, Experts
from streamwell.engine.native.packing import Packer
from streamwell.engine.native.structures import ExpertStruct, MixtureStruct


def feed_forward(packer: Packer, spec: DecoderSpec, name: str) -> ExpertStruct:
    """The layer below `name`, which ends in a dot."""
    up = f"{name}up_proj"
    first = packer.gated(f"{name}gate_proj", up) if spec.is_gated else packer.linear(up)
    return ExpertStruct(first.struct, packer.linear(f"{name}down_proj").struct)


def mixture(packer: Packer, spec: DecoderSpec, experts: Experts, name: str) -> MixtureStruct:
    """A mixture; what decides between its experts is not rounded."""
    count = experts.count
    each = (feed_forward(packer, spec, f"{name}experts.{i}.") for i in range(count))
    struct = MixtureStruct(
        router=packer.linear(f"{name}gate", quantization="none").struct,
        experts=packer.keep_array((ExpertStruct * count)(*each)),
        count=count,
        per_row=experts.num_per_token,
        sums_to_one=experts.sums_to_one,
    )
    if experts.has_shared:
        struct.shared = feed_forward(packer, spec, f"{name}shared_expert.")
        gate = packer.linear(f"{name}shared_expert_gate", quantization="none")
        struct.shared_gate = gate.struct
    return struct
