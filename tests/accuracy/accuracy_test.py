"""Every elementwise operation of floats within its bound on a sample of values: benchmarks/accuracy.cc --quick, on every path of
this machine; the table in docs/accuracy.md is its full sweep. Also that no such operation is missing from it."""
import json
import os
import pathlib
import subprocess
import unittest

PROGRAM = os.path.join(os.environ["WEFT_BUILD"], "bin", "accuracy")
SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
# Operations of one or two float operands whose results are not element by element, not floats, or one operand's elements or an exact
# conversion of them.
OTHERS = set("""all any argmax argmin argsort bitcast_convert broadcast_in_dim broadcast_to cholesky clip compare complex
concatenate conj convert dropout eq expand_dims fft flatten ge gt imag is_finite is_nan le log_softmax logsumexp lt matmul max
maximum mean min minimum mse ne prod real reduce_precision rem reshape reverse slice slice_in_dim softmax sort squeeze stack std
sum top_k transpose triangular_solve var
allclose aminmax copysign count_nonzero fmax fmin is_inf is_neg_inf is_pos_inf isclose kthvalue logical_and logical_not logical_or
logical_xor median nan_to_num nanmean nansum norm quantile signbit softmin std_mean trace var_mean""".split())
NOT_ELEMENTWISE = {"reduce", "pad", "gather", "scatter", "take", "dot_general", "convolution", "conv", "conv_transpose", "avg_pool", "max_pool",
                   "reduce_window", "select_and_scatter", "conv_backward_input", "conv_backward_kernel", "dynamic_slice",
                   "dynamic_update_slice", "embedding", "cross_entropy", "layer_norm", "rms_norm", "batch_norm", "batch_norm_inference",
                   "linear", "one_hot", "scaled_dot_product_attention", "tile", "tril", "triu", "repeat_interleave", "roll", "diff",
                   "cumsum", "cumprod", "cummax", "cummin", "nonzero_static", "unique_static", "searchsorted", "isin", "glu",
                   "hinge_embedding", "huber", "kl_div", "l1", "pairwise_distance", "poisson_nll", "smooth_l1", "soft_margin",
                   "as_strided", "as_strided_scatter", "block_diag", "diag", "diag_embed", "diagonal", "diagonal_scatter", "movedim", "rot90",
                   "select_scatter", "slice_scatter", "unfold", "adaptive_avg_pool", "adaptive_max_pool", "affine_grid", "cdist", "channel_shuffle", "col2im",
                   "corrcoef", "cosine_similarity", "cross", "cumulative_trapezoid", "grid_sample", "histc", "im2col", "kron",
                   "local_response_norm", "logcumsumexp", "lp_pool", "matrix_power", "max_pool_with_indices", "nanmedian", "pad_circular",
                   "pad_reflect", "pad_replicate", "pixel_shuffle", "pixel_unshuffle", "renorm", "resize", "trapezoid", "vander", "vecdot",
                   "cartesian_prod", "combinations", "frexp", "meshgrid", "polar", "nanquantile", "pdist", "geqrf", "logdet",
                   "fractional_max_pool", "hash_tensor", "ldl",
                   "cholesky_inverse", "cholesky_solve", "cond", "det", "eig", "eigh", "eigvals", "eigvalsh", "einsum", "householder_product", "inv",
                   "lstsq", "lu", "matrix_exp", "matrix_norm", "matrix_rank", "most_frequent", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
                   "stft", "tensordot", "tensorinv", "tensorsolve", "unique_consecutive_static", "weight_norm",
                   "orthogonal_polynomial",
                   "airy_ai", "airy_ai_slope"}  # mpmath's judgement: airy_test.py

class Accuracy(unittest.TestCase):
    def test_a_sample_of_every_operation_is_within_its_bound(self):
        done = subprocess.run([PROGRAM, "--quick", "--json"], capture_output=True, text=True, timeout=900)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertGreater(len(json.loads(done.stdout)), 100)

    def test_every_elementwise_float_operation_is_judged(self):
        judged = set(subprocess.run([PROGRAM, "--list"], capture_output=True, text=True, check=True).stdout.split())
        ops = json.loads((SOURCE / "include" / "c_api" / "ops.json").read_text(encoding="utf-8"))["ops"]
        floats = {op["c_name"] for op in ops if op["exported"] and 1 <= len(op["operands"]) <= 2 and not op["random"]
                  and all("f32" in x["dtypes"] for x in op["operands"])}
        self.assertEqual(set(), floats - judged - OTHERS - NOT_ELEMENTWISE, "add them to benchmarks/accuracy.cc")
        self.assertEqual(set(), judged - floats)

    def test_the_table_has_every_operation(self):
        judged = subprocess.run([PROGRAM, "--list"], capture_output=True, text=True, check=True).stdout.split()
        text = (SOURCE / "docs" / "accuracy.md").read_text(encoding="utf-8")
        for name in judged:
            for dtype in ("f32", "f64", "bf16", "f16"):
                self.assertRegex(text, r"\| %s( \S+)* \| %s \|" % (name, dtype))
        self.assertNotIn("WRONG |", text)


if __name__ == "__main__":
    unittest.main()
