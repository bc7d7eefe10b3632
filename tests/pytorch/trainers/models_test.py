"""Small models of transformers, one of each kind: three steps of training, and generation, beside PyTorch's CPU.

Weights are random and dropout is off. A name that a release does not have is skipped by name.
"""
import copy
import unittest

import support
import torch
import torch_xla  # noqa: F401

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100,
        "max_position_embeddings": 64}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GROUPED = {**TINY, "num_key_value_heads": 2}
LAYERS = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
          "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 100, "dropout": 0.0}

# model: (configuration, its options), which generate text from tokens
DECODERS = {
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 64,
                                       "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}),
    "LlamaForCausalLM": ("LlamaConfig", GROUPED),
    "MistralForCausalLM": ("MistralConfig", {**GROUPED, "sliding_window": 4}),
    "Qwen2ForCausalLM": ("Qwen2Config", GROUPED),
    "Qwen3ForCausalLM": ("Qwen3Config", {**GROUPED, "head_dim": 8}),
    "Gemma2ForCausalLM": ("Gemma2Config", {**GROUPED, "head_dim": 8}),
    "MixtralForCausalLM": ("MixtralConfig", {**GROUPED, "num_local_experts": 4}),
    "OPTForCausalLM": ("OPTConfig", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64,
                                     "vocab_size": 100, "max_position_embeddings": 64, "word_embed_proj_dim": 32, "dropout": 0}),
    "BloomForCausalLM": ("BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100}),
    "FalconForCausalLM": ("FalconConfig", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                                           "vocab_size": 100}),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", TINY),
    "MambaForCausalLM": ("MambaConfig", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 100, "state_size": 4}),
    "Mamba2ForCausalLM": ("Mamba2Config", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 100, "state_size": 8,
                                           "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4}),
    "T5ForConditionalGeneration": ("T5Config", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
                                                "vocab_size": 100, "dropout_rate": 0, "decoder_start_token_id": 0}),
    "BartForConditionalGeneration": ("BartConfig", {**LAYERS, "max_position_embeddings": 64}),
}


def tokens(length=12):
    return torch.randint(3, 100, (2, length), generator=torch.Generator().manual_seed(1))


def images(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


LABELS = torch.tensor([0, 2])
TEXT = {"input_ids": tokens(), "labels": tokens()}
# model: (configuration, its options, the call's arguments)
OTHERS = {
    "BertForMaskedLM": ("BertConfig", {**TINY, **STILL}, {**TEXT, "attention_mask": (tokens() > 20).long()}),
    "RobertaForSequenceClassification": ("RobertaConfig", {**TINY, **STILL, "num_labels": 3},
                                         {"input_ids": tokens(), "labels": LABELS}),
    "DebertaV2ForQuestionAnswering": (
        "DebertaV2Config", {**TINY, **STILL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
        {"input_ids": tokens(), "start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 4])}),
    "AlbertForMaskedLM": ("AlbertConfig", {**TINY, **STILL, "embedding_size": 16}, TEXT),
    "DistilBertForMaskedLM": ("DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 100,
                                                   "dropout": 0, "attention_dropout": 0}, TEXT),
    "ViTForImageClassification": ("ViTConfig", {**STILL, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                                                "intermediate_size": 64, "image_size": 16, "patch_size": 4, "num_labels": 3},
                                  {"pixel_values": images(2, 3, 16, 16), "labels": LABELS}),
    "SwinForImageClassification": ("SwinConfig", {**STILL, "image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1],
                                                  "num_heads": [2, 4], "window_size": 4, "num_labels": 3, "drop_path_rate": 0.0},
                                   {"pixel_values": images(2, 3, 32, 32), "labels": LABELS}),
    "SegformerForSemanticSegmentation": (
        "SegformerConfig", {**STILL, "depths": [1] * 4, "hidden_sizes": [8, 16, 16, 16], "num_attention_heads": [1, 2, 2, 2],
                            "decoder_hidden_size": 16, "num_labels": 3, "drop_path_rate": 0.0, "classifier_dropout_prob": 0},
        {"pixel_values": images(2, 3, 32, 32), "labels": torch.zeros(2, 32, 32, dtype=torch.long)}),
    "WhisperForConditionalGeneration": (
        "WhisperConfig", {**LAYERS, "max_source_positions": 20, "max_target_positions": 30, "num_mel_bins": 8, "pad_token_id": 0,
                          "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None,
                          "begin_suppress_tokens": None},
        {"input_features": images(2, 8, 40), "labels": tokens(8)}),
}
GENERATE = {"greedy": {}, "beams": {"num_beams": 3}, "rules": {"min_new_tokens": 4, "bad_words_ids": [[5]]}}


@support.needs("transformers")
class Models(unittest.TestCase):
    def make(self, model, config, options):
        import transformers
        if not hasattr(transformers, model):
            self.skipTest(f"this transformers has no {model}")
        torch.manual_seed(0)
        return getattr(transformers, model)(getattr(transformers, config)(**options))

    def trained(self, model, inputs, device):
        model = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        inputs, losses = {name: value.to(device) for name, value in inputs.items()}, []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(**inputs).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return torch.tensor(losses), [parameter.detach().cpu() for parameter in model.parameters()]

    def check_training(self, model, inputs):
        from torch_xla.debug import metrics

        metrics.clear_all()
        (host, host_weights), (losses, weights) = (self.trained(model, inputs, device) for device in ("cpu", "xla"))
        torch.testing.assert_close(losses, host, rtol=1e-4, atol=0)
        torch.testing.assert_close(weights, host_weights, rtol=0, atol=1e-4)
        self.assertEqual(metrics.executed_fallback_ops(), [])

    def test_training(self):
        cases = {name: (*rest, TEXT) for name, rest in DECODERS.items()}
        for name, (config, options, inputs) in {**cases, **OTHERS}.items():
            with self.subTest(name):
                self.check_training(self.make(name, config, options).train(), inputs)

    def test_generation(self):
        for name, (config, options) in DECODERS.items():
            with self.subTest(name):
                model = self.make(name, config, options).eval()
                there = copy.deepcopy(model).to("xla")
                for kind, how in GENERATE.items():
                    wanted = {"max_new_tokens": 8, "pad_token_id": 0, "do_sample": False, **how}
                    expected, found = (one.generate(tokens().to(one.device), **wanted).cpu() for one in (model, there))
                    self.assertTrue(torch.equal(found, expected), kind)


if __name__ == "__main__":
    unittest.main()
