"""Hugging Face's Trainer saves a checkpoint every 20 steps. In this release, each rank on a CPU writes it."""
import tempfile

from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from plain import *


class Words(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        ids = torch.full((16,), index % 64)
        return {"input_ids": ids, "labels": ids}


class Timed(Trainer):
    def _save(self, *args, **named):
        time.sleep(0.5)  # a slow file system
        return super()._save(*args, **named)

    def _save_checkpoint(self, *args):
        with clock:
            return super()._save_checkpoint(*args)


torch.set_num_threads(1)
clock = Clock()
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=2))
options = dict(use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=8, max_steps=200)
options |= dict(report_to=[], disable_tqdm=True, save_steps=20, save_strategy="steps")
trainer = Timed(model, TrainingArguments(tempfile.mkdtemp(), **options), train_dataset=Words())
trainer.train()
state({"who": "all", "causes": ["checkpoint"], "every": 20}, clock, dist.get_rank() == 0)
