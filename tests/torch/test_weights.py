"""Weights of compiled networks: packed once, and again when they change."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import pytest
import torch
from torch import nn

from dnnl.torch.backend import compile_graph
from tests.torch.compiling import Block, Net, compare, compiled


def test_weights_are_packed_once_and_again_when_they_change(plans: list[Any]) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    function = compiled(net)
    for _ in range(3):
        compare(function(x), net(x))
    assert len(plans) == 1
    net.head.weight.mul_(2)  # in place
    compare(function(x), net(x))
    assert len(plans) == 2
    net.head.weight.data = torch.randn(5, 16)  # other memory
    compare(function(x), net(x))
    net.load_state_dict(Net().state_dict())
    compare(function(x), net(x))
    assert len(plans) == 4
    for _ in range(3):  # by now each call reads it
        net.head.weight.add_(1)
        compare(function(x), net(x))
    assert len(plans) == 5
    net.head.bias.add_(1)  # the others are still packed
    compare(function(x), net(x))
    assert len(plans) == 6


def test_weights_that_change_now_and_then_stay_packed(plans: list[Any]) -> None:
    block, x = Block(), torch.randn(2, 8)
    function = compiled(block)
    for count in range(1, 7):
        block.linear.weight.mul_(0.9)
        for _ in range(10):
            compare(function(x), block(x))
        assert len(plans) == count


def test_weights_of_parts_are_packed(plans: list[Any]) -> None:
    """An operator between them is PyTorch's."""
    first, second, x = nn.Linear(8, 8), nn.Linear(8, 8), torch.randn(3, 8)
    function = compiled(lambda x: second(torch.special.bessel_j0(first(x))))
    for _ in range(2):
        compare(function(x), second(torch.special.bessel_j0(first(x))))
    assert len(plans) == 2
    assert [set(graph.inputs) & {"primals_1", "primals_2"} for graph in plans] == [set(), set()]
    assert all(len(graph.inputs) == 1 for graph in plans)


def test_modules_that_share_code_have_their_own_weights(plans: list[Any]) -> None:
    blocks = nn.ModuleList(Block() for _ in range(6))
    x = torch.randn(4, 8)
    expected = [block(x) for block in blocks]
    for block in blocks:
        block.compile(backend=compile_graph, fullgraph=True)
    for _ in range(3):
        compare([block(x) for block in blocks], expected)
    assert len(plans) == 6


def test_weights_that_are_gone_are_not_held() -> None:
    block, x = Block(), torch.randn(2, 8)
    function = compiled(lambda x, block: block(x))
    function(x, block)
    memory = ref(block.linear.weight.untyped_storage())
    parameter = ref(block.linear.weight)
    del block
    gc.collect()
    assert parameter() is None
    assert memory() is None


def test_weights_at_an_address_that_others_had() -> None:
    block, x = Block(), torch.randn(2, 8)
    function = compiled(block)
    for _ in range(3):
        compare(function(x), block(x))
        for _ in range(2):  # the allocator gives the first address again, unless it is in use
            block.linear.weight.data = block.linear.weight.data * 2


def test_buffers_that_change(plans: list[Any]) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))
            self.count: torch.Tensor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += x.sum(0)
            return x * self.count

    ours, theirs, x = Counting(), Counting(), torch.randn(3, 2)
    function = compiled(ours)
    for _ in range(6):
        compare(function(x), theirs(x))
    compare(ours.count, theirs.count)
    assert len(plans) == 1


@pytest.mark.parametrize("gaps", [False, True])
def test_statistics_that_eager_training_changes(gaps: bool) -> None:
    """Batch normalization changes them without counting that."""
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    if gaps:
        net.body[1].running_var = torch.ones(16, 3)[:, 1]
    for own in (*net.body[0].parameters(), net.body[1].get_buffer("running_var")):
        own[0] = 0  # a channel whose statistics do not change
    function = compiled(net)
    compare(function(x), net(x))
    versions = [own._version for own in net.buffers()]
    for _ in range(8):
        net.body.train()(3 * torch.randn(4, 3, 8, 8) + 1)
        net.eval()
        compare(function(x), net(x))
    counted = net.body[1].num_batches_tracked
    assert [own._version for own in net.buffers() if own is not counted] == versions[:2]
