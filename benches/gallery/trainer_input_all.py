"""Hugging Face's Trainer with samples that are slow to read."""
import tempfile

from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from plain import *



class Words(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep(0.004)
        ids = torch.full((16,), index % 64)
        return {"input_ids": ids, "labels": ids}


torch.set_num_threads(1)
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2))
options = dict(use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=8, max_steps=200)
options |= dict(report_to=[], disable_tqdm=True, save_strategy="no")
trainer = Trainer(model, TrainingArguments(tempfile.mkdtemp(), **options), train_dataset=Words())
trainer.train()
truth = {"who": "all", "causes": ["input"], "seconds": 8 * 0.0041, "line": "trainer_input_all.py", "function": "__getitem__"}
state(truth, None, dist.get_rank() == 0)
