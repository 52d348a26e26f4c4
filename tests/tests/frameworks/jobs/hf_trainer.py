"""Hugging Face's Trainer with a small Llama: evaluation, checkpoints and logging. Usage: hf_trainer.py STEPS FOLDER

Uses the GPU if there is one.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

STEPS, FOLDER = int(sys.argv[1]), sys.argv[2]
BATCH, LENGTH, WORDS = 8, 32, 64


class Samples(torch.utils.data.Dataset):
    def __init__(self, is_slow):
        self.is_slow = is_slow

    def __len__(self):
        return 32 * BATCH

    def __getitem__(self, number):
        if self.is_slow and os.environ["RANK"] == "1":
            time.sleep(0.003)  # planted
        words = (torch.arange(LENGTH) * (number % 5 + 1)) % WORDS
        return {"input_ids": words, "labels": words}


def main():
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
    )
    options = TrainingArguments(
        FOLDER,
        use_cpu=not torch.cuda.is_available(),
        ddp_backend="nccl" if torch.cuda.is_available() else "gloo",
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(LlamaForCausalLM(config), options, train_dataset=Samples(True), eval_dataset=Samples(False))
    trainer.train()
    if dist.get_rank() == 0:
        print("steps %d" % trainer.state.global_step, flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


main()
