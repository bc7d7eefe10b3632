"""diffusers sees the package, imports with it, and its U-Net computes on the device what it computes on the CPU."""
import copy
import unittest

import support
import torch


@support.needs("diffusers")
class Diffusers(unittest.TestCase):

    def test_it_is_seen_and_a_small_model_computes(self):
        import diffusers
        from diffusers.models import attention_processor
        from diffusers.utils import is_torch_xla_available
        self.assertTrue(is_torch_xla_available())
        self.assertTrue(attention_processor.XLA_AVAILABLE)
        torch.manual_seed(1)
        host = diffusers.UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, norm_num_groups=4,
                                     block_out_channels=(8, 16), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                                     up_block_types=("AttnUpBlock2D", "UpBlock2D")).eval()
        there = copy.deepcopy(host).to("xla")
        sample = torch.randn(2, 1, 8, 8)
        with torch.no_grad():
            there(sample.to("xla"), 3).sample.cpu()
            watch = support.Watch()
            got = there(sample.to("xla"), 3).sample.cpu()
            watch.check(self, 1)
            torch.testing.assert_close(got, host(sample, 3).sample, rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    unittest.main()
