import sys
from types import SimpleNamespace

import pytest
from fake_gpu import Clock, FakeGpu

from perseus.recurring.gpus import own_gpus, synchronize
from perseus.recurring.ranks import SingleRank, TorchRanks, current_ranks, sum_distinct


class FakeDistributed:
    def __init__(self, size: int, rank: int) -> None:
        self.size, self.rank = size, rank
        self.sent: list[object] = []

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_world_size(self) -> int:
        return self.size

    def get_rank(self) -> int:
        return self.rank

    def all_gather_object(self, values: list[object], value: object) -> None:
        values[:] = [f"{k}:{value}" for k in range(self.size)]

    def broadcast_object_list(self, values: list[object], src: int) -> None:
        assert src == 0
        self.sent.append(values[0])
        values[0] = "of rank 0"


def fake_torch(size: int = 2, rank: int = 1, device: int | None = None) -> SimpleNamespace:
    calls: list[str] = []
    cuda = SimpleNamespace(
        is_available=lambda: device is not None,
        is_initialized=lambda: device is not None,
        current_device=lambda: device,
        synchronize=lambda: calls.append("synchronize"),
        calls=calls,
    )
    return SimpleNamespace(distributed=FakeDistributed(size, rank), cuda=cuda)


def test_without_torch_there_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    ranks = current_ranks()
    assert isinstance(ranks, SingleRank)
    assert ranks.gather(3) == [3]
    assert ranks.from_first(lambda: 4) == 4
    synchronize()


def test_ranks_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    ranks = current_ranks()
    assert isinstance(ranks, TorchRanks)
    assert (ranks.rank, ranks.size) == (1, 2)
    assert ranks.gather("x") == ["0:x", "1:x"]
    assert ranks.from_first(lambda: 1 // 0) == "of rank 0"  # only rank 0 makes the value


def test_a_world_of_one_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(size=1))
    assert isinstance(current_ranks(), SingleRank)


@pytest.mark.parametrize(
    ("torch", "local_rank", "expected"),
    [
        (None, None, [0, 1, 2]),
        (fake_torch(size=1), None, [0, 1, 2]),
        (fake_torch(device=2), "0", [2]),
        (fake_torch(), "1", [1]),
        (fake_torch(), "7", [0, 1, 2]),
    ],
)
def test_own_gpus(torch: object, local_rank: str | None, expected: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [FakeGpu(Clock(), uuid=f"GPU-{k}") for k in range(3)]
    device = SimpleNamespace(open_gpus=lambda: gpus)
    monkeypatch.setattr("perseus.recurring.gpus.importlib.import_module", lambda name: device)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert own_gpus() == [gpus[k] for k in expected]


def test_synchronize_waits_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(device=0)
    monkeypatch.setitem(sys.modules, "torch", torch)
    synchronize()
    assert torch.cuda.calls == ["synchronize"]


def test_sum_distinct() -> None:
    assert sum_distinct([{"a": 1.0, "b": 2.0}, {"b": 2.0}, {}]) == 3.0
