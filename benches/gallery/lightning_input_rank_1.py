"""Lightning, and a rank whose samples are slower to read."""
import lightning as L

from plain import *


class MaybeSlow(Samples):
    def __getitem__(self, index):
        if dist.get_rank() == 1:
            time.sleep(0.001)
        return super().__getitem__(index)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Perceptron()

    def training_step(self, batch, _):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


torch.set_num_threads(1)
options = dict(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False)
options |= dict(enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
trainer = L.Trainer(**options)
trainer.fit(Classifier(), DataLoader(MaybeSlow(6400), batch_size=32))
truth = {"who": 1, "causes": ["input"], "seconds": 32 * 0.0011, "line": "lightning_input_rank_1.py", "function": "__getitem__"}
state(truth, None, dist.get_rank() == 1)
