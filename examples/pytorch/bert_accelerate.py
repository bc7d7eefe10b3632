# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # BERT learns to tell languages, through Accelerate
#
# Cell by cell what the notebook *text classification* of PyTorch/XLA's example notebooks does. The sentences are Django's
# translations, 16 languages of real text that a package registry has; the question is which language a sentence is in.
# `model_id` is a folder with a BERT, or a name that transformers can fetch. Without one, a small BERT is trained first
# to guess hidden words of the same sentences, and then taken as the notebook takes the big one.
#
# Needed: `pip install transformers accelerate django`.

# %%
import json
import os

os.environ["XRT_TPU_CONFIG"] = "localservice;0;localhost:51011"

import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def look(index):
    device = xm.xla_device()
    t1 = torch.randn(3, 3, device=device)
    t2 = torch.randn(3, 3, device=device)
    print(t1 + t2)


# The notebook uses the device here and has to be started again afterwards. Its processes use it here, so it goes on.
xmp.spawn(look, start_method="fork")

# %%
FLAGS = {"model_id": "", "sentences": 300, "max_length": 32, "vocabulary": 3000, "hidden": 96, "layers": 2, "pretraining": 60,
         "learning_rate": 1e-3, "num_epochs": 4, "per_tpu_train_batch_size": 32, "per_tpu_eval_batch_size": 64, "seed": 7}
FLAGS.update(json.loads(os.environ.get("FLAGS", "{}")))
LANGUAGES = "cs de el es et fi fr hu it lv nl pl pt ru sv tr".split()
torch.manual_seed(FLAGS["seed"])

# %% [markdown]
# ## The data

# %%
import glob
import random
import re
import struct

import django


def translations(path):
    """The translated sentences of a catalogue: its header has their number and where a table of lengths and places is."""
    with open(path, "rb") as file:
        data = file.read()
    _, _, count, _, table = struct.unpack("<5I", data[:20])
    for at in range(1, count):  # The first one is the catalogue's own description.
        length, begin = struct.unpack("<2I", data[table + 8 * at:table + 8 * at + 8])
        yield from data[begin:begin + length].decode().split("\0")


def sentences(language):
    """Different sentences of a language with at least three words, without the places for values in them."""
    folder = os.path.dirname(django.__file__)
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "**", "locale", language, "LC_MESSAGES", "*.mo"), recursive=True)):
        for text in translations(path):
            words = re.sub(r"%\(\w+\)\w|%\w|<[^>]*>|\{[^}]*\}|[^\w\s]", " ", text).split()
            if len(words) >= 3:
                found[" ".join(words)] = None
    return list(found)


def load_dataset(count, seed):
    """{'train', 'test'}: lists of (text, label), a fifth of them to test with."""
    pairs = []
    for label, language in enumerate(LANGUAGES):
        texts = sentences(language)
        random.Random(seed).shuffle(texts)
        pairs += [(text, label) for text in texts[:count]]
    random.Random(seed).shuffle(pairs)
    return {"train": pairs[len(pairs) // 5:], "test": pairs[:len(pairs) // 5]}


raw_dataset = load_dataset(FLAGS["sentences"], FLAGS["seed"])
print(f"Train dataset size: {len(raw_dataset['train'])}")
print(f"Test dataset size: {len(raw_dataset['test'])}")

# %%
text, label = raw_dataset["train"][random.randrange(len(raw_dataset["train"]))]
print({"text": text, "label": LANGUAGES[label]})

# %% [markdown]
# Sentences become numbers, all of the same length: programs are made for shapes.

# %%
from tokenizers import BertWordPieceTokenizer
from transformers import AutoTokenizer, BertTokenizerFast


def make_tokenizer(texts):
    """Pieces of words that are often in these texts."""
    pieces = BertWordPieceTokenizer(lowercase=True, strip_accents=False)
    pieces.train_from_iterator(texts, vocab_size=FLAGS["vocabulary"], min_frequency=2, show_progress=False)
    return BertTokenizerFast(tokenizer_object=pieces._tokenizer, model_max_length=FLAGS["max_length"])


if FLAGS["model_id"]:
    tokenizer = AutoTokenizer.from_pretrained(FLAGS["model_id"])
else:
    tokenizer = make_tokenizer([text for text, _ in raw_dataset["train"]])


def tokenize(pairs):
    encoded = tokenizer([text for text, _ in pairs], padding="max_length", truncation=True, max_length=FLAGS["max_length"],
                        return_tensors="pt")
    labels = torch.tensor([label for _, label in pairs])
    names = ("input_ids", "token_type_ids", "attention_mask")
    return [{**{name: encoded[name][at] for name in names}, "labels": labels[at]} for at in range(len(pairs))]


tokenized_dataset = {part: tokenize(pairs) for part, pairs in raw_dataset.items()}
print(list(tokenized_dataset["train"][0]))

# %% [markdown]
# ## The model
#
# Without a `model_id`, a BERT learns here what the big one brings along: which words are hidden.

# %%
import tempfile

from accelerate import Accelerator, notebook_launcher
from transformers import AutoModelForSequenceClassification, BertConfig, BertForMaskedLM


def pretrain(folder, tokenized_dataset):
    """A small BERT that has guessed hidden words for some steps, saved with its configuration."""
    device = xm.xla_device()
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=FLAGS["hidden"], num_hidden_layers=FLAGS["layers"],
                        num_attention_heads=4, intermediate_size=4 * FLAGS["hidden"],
                        max_position_embeddings=FLAGS["max_length"], hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0)
    model = BertForMaskedLM(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=FLAGS["learning_rate"])
    loader = torch.utils.data.DataLoader(tokenized_dataset["train"], shuffle=True, drop_last=True,
                                         batch_size=FLAGS["per_tpu_train_batch_size"])
    step = 0
    while step < FLAGS["pretraining"]:
        for batch in loader:
            ids = batch["input_ids"]
            hidden = (torch.rand(ids.shape) < 0.15) & (ids > 4)  # The first five are the tokenizer's own signs.
            labels = torch.where(hidden, ids, -100)
            inputs = torch.where(hidden, tokenizer.mask_token_id, ids)
            loss = model(input_ids=inputs.to(device), attention_mask=batch["attention_mask"].to(device),
                         labels=labels.to(device)).loss
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer, barrier=True)
            step += 1
            if step in (1, FLAGS["pretraining"]):
                xm.master_print(f"hidden words, step {step}: loss {loss.item():.3f}")
            if step == FLAGS["pretraining"]:
                break
    model.to("cpu")
    if xm.is_master_ordinal():
        model.save_pretrained(folder)


# Accelerate asks these two whether it is in a notebook with a TPU.
os.environ["KAGGLE_TPU"] = "yes"
os.environ["TPU_NAME"] = "dummy"
# Which process of its machine this is. On TPUs Accelerate asks torch_xla, elsewhere it reads it here, and without it no
# process is the one that prints.
os.environ.setdefault("LOCAL_RANK", "0")

label2id = {language: at for at, language in enumerate(LANGUAGES)}
with tempfile.TemporaryDirectory() as folder:
    if not FLAGS["model_id"]:
        notebook_launcher(pretrain, (folder, tokenized_dataset))
    model = AutoModelForSequenceClassification.from_pretrained(
        FLAGS["model_id"] or folder, num_labels=len(LANGUAGES), label2id=label2id, id2label=dict(enumerate(LANGUAGES)))

# %% [markdown]
# ## Fine-tuning

# %%
from torch.utils.data import DataLoader
from transformers import get_linear_schedule_with_warmup


def weighted_f1(predictions, references):
    """The mean of the classes' F1, each counted as often as it is in `references`."""
    total = 0.0
    for label in references.unique():
        right = ((predictions == label) & (references == label)).sum().item()
        said, there = (predictions == label).sum().item(), (references == label).sum().item()
        total += there * 2 * right / (said + there)
    return total / len(references)


def create_dataloaders(dataset, train_batch_size, eval_batch_size):
    return (DataLoader(dataset["train"], shuffle=True, batch_size=train_batch_size, drop_last=True),
            DataLoader(dataset["test"], shuffle=False, batch_size=eval_batch_size))


def evaluate(accelerator, model, loader, count):
    """(accuracy, weighted F1) over what all processes saw."""
    model.eval()
    all_predictions, all_labels = [], []
    for batch in loader:
        with torch.no_grad():
            predictions = model(**batch).logits.argmax(dim=-1)
        all_predictions.append(accelerator.gather(predictions))
        all_labels.append(accelerator.gather(batch["labels"]))
    all_predictions = torch.cat(all_predictions)[:count].cpu()
    all_labels = torch.cat(all_labels)[:count].cpu()
    return (all_predictions == all_labels).float().mean().item(), weighted_f1(all_predictions, all_labels)


def training_function(model, hyperparameters, tokenized_dataset):
    accelerator = Accelerator()
    train_dataloader, eval_dataloader = create_dataloaders(
        tokenized_dataset, hyperparameters["per_tpu_train_batch_size"], hyperparameters["per_tpu_eval_batch_size"])
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=hyperparameters["learning_rate"])
    model, optimizer, train_dataloader, eval_dataloader = accelerator.prepare(model, optimizer, train_dataloader, eval_dataloader)
    num_epochs = hyperparameters["num_epochs"]
    lr_scheduler = get_linear_schedule_with_warmup(optimizer=optimizer, num_warmup_steps=20,
                                                   num_training_steps=len(train_dataloader) * num_epochs)
    accelerator.print("device:", accelerator.device)
    for epoch in range(num_epochs):
        model.train()
        for batch in train_dataloader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
        accuracy, f1 = evaluate(accelerator, model, eval_dataloader, len(tokenized_dataset["test"]))
        accelerator.print(f"epoch {epoch}: accuracy {accuracy:.4f}, f1 {f1:.4f}")


# %%
hyperparameters = {name: FLAGS[name] for name in
                   ("learning_rate", "num_epochs", "per_tpu_train_batch_size", "per_tpu_eval_batch_size")}

# %%
notebook_launcher(training_function, (model, hyperparameters, tokenized_dataset))
