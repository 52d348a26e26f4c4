"""Lightning validates every 40 batches, on all ranks."""
import lightning as L

from plain import *


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Perceptron()

    def training_step(self, batch, _):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.net(batch[0])

    def on_validation_start(self):
        clock.__enter__()

    def on_validation_end(self):
        clock.__exit__()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


torch.set_num_threads(1)
clock = Clock()
options = dict(accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, logger=False, enable_checkpointing=False)
options |= dict(enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
trainer = L.Trainer(val_check_interval=40, **options)
trainer.fit(Classifier(), DataLoader(Samples(7680), batch_size=32), DataLoader(Samples(16_000), batch_size=32))
state({"who": "all", "causes": ["evaluation"], "every": 40}, clock, trainer.is_global_zero)
