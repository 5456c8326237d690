"""`operations` in Triton: each is one kernel, where PyTorch launches several."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from streamwell.engine.operations import SWIGLU_ALPHA, SWIGLU_LIMIT, Activation, Operations

#: Numbers that a program gates.
_GATE_SPAN = 1024
_ALPHA, _LIMIT = tl.constexpr(SWIGLU_ALPHA), tl.constexpr(SWIGLU_LIMIT)


@triton.jit
def _rotate_kernel(
    x, cos, sin, out, x_stride, HEADS: tl.constexpr, DIM: tl.constexpr, SPAN: tl.constexpr
):
    """A program turns a token's query or key of one head."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.arange(0, SPAN)
    is_dim = at < DIM
    vector, angle = x + row * x_stride + head * DIM, row * DIM + at
    own = tl.load(vector + at, is_dim).to(tl.float32)
    other = tl.load(vector + (at + DIM // 2) % DIM, is_dim).to(tl.float32)
    turned = own * tl.load(cos + angle, is_dim) + other * tl.load(sin + angle, is_dim)
    tl.store(out + (row * HEADS + head) * DIM + at, turned.to(out.dtype.element_ty), is_dim)


@triton.jit
def _gate_kernel(both, out, size, ACTIVATION: tl.constexpr, SPAN: tl.constexpr):
    """A program gates `SPAN` numbers of a token."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    is_there = at < size
    gate = tl.load(both + row * 2 * size + at, is_there).to(tl.float32)
    up = tl.load(both + row * 2 * size + size + at, is_there)
    if ACTIVATION == "silu":
        gate = gate * tl.sigmoid(gate)
    elif ACTIVATION == "clamped_swiglu":
        gate = tl.where(gate > _LIMIT, _LIMIT, gate)
        gate = gate * tl.sigmoid(gate * _ALPHA)
        up = tl.where(up > _LIMIT, _LIMIT, tl.where(up < -_LIMIT, -_LIMIT, up)) + 1
    elif ACTIVATION == "gelu_tanh":  # tanh(x) = 2 sigmoid(2 x) - 1; sqrt(8 / pi) = 1.5957...
        gate = gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))
    else:
        gate = 0.5 * gate * (1 + tl.erf(gate * 0.7071067811865476))
    tl.store(out + row * size + at, gate.to(up.dtype) * up, is_there)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    num_tokens, heads, dim = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    grid = (num_tokens, heads)
    span = triton.next_power_of_2(dim)
    _rotate_kernel[grid](x, cos, sin, out, x.stride(0), heads, dim, span, num_warps=1)
    return out


def _gate(activation: str) -> Activation:
    return functools.partial(_gated, activation)


def _gated(activation: str, both: torch.Tensor) -> torch.Tensor:
    num_tokens, size = both.shape[0], both.shape[1] // 2
    out = both.new_empty((num_tokens, size))
    grid = (num_tokens, triton.cdiv(size, _GATE_SPAN))
    _gate_kernel[grid](both, out, size, activation, _GATE_SPAN)
    return out


FUSED = Operations(_rotate, _gate)
