"""Lightning, with nothing planted."""
import lightning as L

from plain import *


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
trainer.fit(Classifier(), DataLoader(Samples(6400), batch_size=32))
state({"who": None}, None, trainer.is_global_zero)
