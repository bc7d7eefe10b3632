"""transformers' Trainer trains a network of our own, and a small BERT with its own optimizer for XLA, on the device."""
import functools
import tempfile
import unittest

import support
import torch

EPOCHS = 6


class _Rows(torch.utils.data.Dataset):

    def __init__(self):
        self.inputs, self.targets = support.data()

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return {"inputs": self.inputs[index], "labels": self.targets[index]}


class _Network(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.layers = support.network()

    def forward(self, inputs, labels):
        out = self.layers(inputs)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}


class _Tokens(torch.utils.data.Dataset):
    """Sentences of numbers whose first one says the class."""

    def __init__(self):
        generator = torch.Generator().manual_seed(4)
        self.ids = torch.randint(4, 32, (192, 10), generator=generator)
        self.labels = torch.randint(0, 4, (192,), generator=generator)
        self.ids[:, 0] = self.labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "attention_mask": torch.ones_like(self.ids[index]), "labels": self.labels[index]}


def _callback(losses):
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):
        watch = None

        def on_epoch_begin(self, args, state, control, **more):
            if round(state.epoch) == 2:
                self.watch = support.Watch()

        def on_log(self, args, state, control, logs=None, **more):
            if "loss" in logs:
                losses.append(float(logs["loss"]))

    return Watcher()


def _arguments(folder, **more):
    from transformers import TrainingArguments
    return TrainingArguments(output_dir=folder, per_device_train_batch_size=support.BATCH, num_train_epochs=EPOCHS,
                             logging_steps=1, report_to=[], save_strategy="no", lr_scheduler_type="constant", disable_tqdm=True, **more)


@support.needs("transformers", "accelerate")
class Trainer(unittest.TestCase):

    def test_it_finds_the_device_and_trains_as_torch_does(self):
        import transformers
        losses = []
        watcher = _callback(losses)

        class InOrder(transformers.Trainer):  # as the training by hand
            def _get_train_sampler(self, *args, **named):
                return torch.utils.data.SequentialSampler(self.train_dataset)

        with tempfile.TemporaryDirectory() as folder:
            arguments = _arguments(folder, learning_rate=0.01, max_grad_norm=0.0, optim="adamw_torch")
            self.assertEqual(str(arguments.device), "xla:0")
            trainer = InOrder(model=_Network(), args=arguments, train_dataset=_Rows(), callbacks=[watcher])
            trainer.train()
            watcher.watch.check(self, (EPOCHS - 2) * support.BATCHES)
            self.assertGreater(trainer.evaluate(_Rows())["eval_loss"], 0)
        parameters = list(trainer.model.parameters())
        self.assertEqual({str(parameter.device) for parameter in parameters}, {"xla:0"})
        support.check_equal(self, parameters, losses, EPOCHS,
                            functools.partial(torch.optim.AdamW, lr=0.01, weight_decay=0.0))

    def test_a_bert_learns_with_the_optimizer_for_xla(self):
        import transformers
        config = transformers.BertConfig(vocab_size=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                                         num_labels=4, intermediate_size=64, max_position_embeddings=16)
        torch.manual_seed(5)
        losses = []
        watcher = _callback(losses)
        with tempfile.TemporaryDirectory() as folder:
            trainer = transformers.Trainer(
                model=transformers.BertForSequenceClassification(config), train_dataset=_Tokens(), callbacks=[watcher],
                args=_arguments(folder, learning_rate=0.003, optim="adamw_torch_xla", seed=1))
            trainer.train()
            watcher.watch.check(self, (EPOCHS - 2) * support.BATCHES)
            guesses = trainer.predict(_Tokens())
            trainer.save_model(folder)
            again = transformers.BertForSequenceClassification.from_pretrained(folder)
        from torch_xla.amp import syncfree
        self.assertIsInstance(getattr(trainer.optimizer, "optimizer", trainer.optimizer), syncfree.AdamW)
        self.assertLess(sum(losses[-support.BATCHES:]), 0.2 * sum(losses[:support.BATCHES]))
        self.assertGreater((guesses.predictions.argmax(1) == guesses.label_ids).mean(), 0.95)
        for name, value in trainer.model.state_dict().items():
            self.assertTrue(torch.equal(again.state_dict()[name], value.cpu()), name)


if __name__ == "__main__":
    unittest.main()
