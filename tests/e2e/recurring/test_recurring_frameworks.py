"""The callbacks in the real frameworks, and the ranks of the real torch.distributed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import perseus

torch = pytest.importorskip("torch", reason="torch is not installed")
SOURCE = Path(perseus.__file__).parents[1]


def has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def job(path: Path, **changes: object) -> object:
    from perseus.recurring import Job

    fields: dict[str, object] = {"batch_sizes": [8, 16], "default": 8, "better": "lower", "gpus": [], "store": path}
    return Job("regression", **{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.skipif(not (has("transformers") and has("accelerate")), reason="transformers and accelerate are missing")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("target", "epochs", "reached"), [(1e9, 1, True), (-1.0, 3, False)])
def test_transformers(tmp_path: Path, target: float, epochs: int, reached: bool) -> None:
    from transformers import Trainer, TrainingArguments

    from perseus.recurring import transformers_callback

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(1, 1)

        def forward(self, x: object, labels: object = None) -> dict[str, object]:
            y = self.linear(x)
            return {"loss": torch.nn.functional.mse_loss(y, labels), "logits": y}

    data = [{"x": torch.tensor([float(k)]), "labels": torch.tensor([2.0 * k])} for k in range(32)]
    with job(tmp_path / "log", target=target, max_epochs=3).run() as run:  # type: ignore[attr-defined]
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            num_train_epochs=9,
            per_device_train_batch_size=run.batch_size,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        callback = transformers_callback(run, metric="eval_loss")
        trainer = Trainer(Model(), arguments, train_dataset=data, eval_dataset=data, callbacks=[callback])
        trainer.train()
    assert (run.result.epochs, run.result.reached) == (epochs, reached)
    assert round(trainer.state.epoch) == epochs


@pytest.mark.skipif(not (has("lightning") or has("pytorch_lightning")), reason="lightning is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("target", "epochs", "reached"), [(1e9, 1, True), (-1.0, 3, False)])
def test_lightning(tmp_path: Path, target: float, epochs: int, reached: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning = pytest.importorskip("lightning.pytorch")
    from perseus.recurring import lightning_callback

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(1, 1)

        def training_step(self, batch: object, index: int) -> object:
            x, y = batch  # type: ignore[misc]
            return torch.nn.functional.mse_loss(self.linear(x), y)

        def validation_step(self, batch: object, index: int) -> None:
            self.log("val_loss", self.training_step(batch, index))

        def configure_optimizers(self) -> object:
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    x = torch.arange(32.0).reshape(-1, 1)
    data = torch.utils.data.TensorDataset(x, 2.0 * x)
    with job(tmp_path / "log", target=target, max_epochs=3).run() as run:  # type: ignore[attr-defined]
        loader = torch.utils.data.DataLoader(data, batch_size=run.batch_size)
        trainer = lightning.Trainer(
            max_epochs=9,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            callbacks=[lightning_callback(run, metric="val_loss")],
        )
        trainer.fit(Module(), loader, loader)
    assert (run.result.epochs, run.result.reached) == (epochs, reached)


RANK = """
import sys
import torch.distributed as dist
dist.init_process_group("gloo")

from perseus.recurring import Job


class Gpu:
    uuid = f"GPU-{dist.get_rank()}"
    energy = 0.0

    def energy_j(self):
        self.energy += 100.0
        return self.energy

    def power_limit_w(self):
        return 250.0

    def power_limit_range_w(self):
        return (100.0, 250.0)

    def set_power_limit_w(self, limit_w):
        raise PermissionError


job = Job("ddp", batch_sizes=[8, 16], default=8, target=0.9, store=sys.argv[1], gpus=[Gpu()], power_limits_w=[])
for _ in range(2):
    with job.run() as run:
        for epoch in run.epochs():
            if dist.get_rank() == 0:
                run.report(0.5 + 0.3 * epoch)
    r = run.result
    text = f"{r.trial_number} {r.batch_size} {r.reached} {r.epochs} {r.energy_j} {run.plan.preference.max_power_w}"
    answers = [None, None]
    dist.all_gather_object(answers, text)
    assert answers[0] == answers[1], answers
    if dist.get_rank() == 0:
        print(text, flush=True)

sys.path.insert(0, sys.argv[2])
from fake_gpu import Clock, FakeGpu
from perseus.recurring import GlobalPowerLimit

clock = Clock()
gpu = FakeGpu(clock, uuid=f"GPU-{dist.get_rank()}", noise=0.02 * dist.get_rank())
with GlobalPowerLimit(max_slowdown=0.1, gpus=[gpu], clock=clock) as limit:
    for _ in limit.steps(range(3000)):
        gpu.step()
    found = (limit.power_limit_w, limit.measurements)
answers = [None, None]
dist.all_gather_object(answers, found)
assert answers[0] == answers[1], answers
assert gpu.limits_set_w[-2:] == [found[0], 250.0], gpu.limits_set_w
if dist.get_rank() == 0:
    print(found[0], round(found[1][0].point.average_power_w), flush=True)
dist.destroy_process_group()
"""


def test_torch_distributed(tmp_path: Path) -> None:
    """Two ranks of one job: one trial, energy and maximum power of both, the metric from one of them."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    fakes = Path(__file__).parents[2] / "unit" / "recurring"
    command += [str(script), str(tmp_path / "log"), str(fakes)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert lines[0] == "0 8 True 3 600.0 500.0"
    assert lines[1].startswith("1 16")
    limit_w, power_w = map(float, lines[2].split())
    assert limit_w == 200.0
    assert power_w == pytest.approx(500.0, rel=0.02)  # of both GPUs at 250 W
