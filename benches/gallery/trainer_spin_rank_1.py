"""Hugging Face's Trainer with a loss that takes 40 ms longer on rank 1."""
import tempfile

from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from plain import *


class Words(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        ids = torch.full((16,), index % 64)
        return {"input_ids": ids, "labels": ids}


class WithMetrics(Trainer):
    def compute_loss(self, model, inputs, **options):
        if dist.get_rank() == 1:
            busy(0.04)
        return super().compute_loss(model, inputs, **options)


torch.set_num_threads(1)
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2))
options = dict(use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=8, max_steps=200)
options |= dict(report_to=[], disable_tqdm=True, save_strategy="no")
trainer = WithMetrics(model, TrainingArguments(tempfile.mkdtemp(), **options), train_dataset=Words())
trainer.train()
truth = {"who": 1, "causes": ["host", "compute"], "seconds": 0.04, "line": "plain.py", "function": "busy"}
state(truth, None, dist.get_rank() == 1)
