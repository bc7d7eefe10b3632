"""What operations.py times: for each operation how PyTorch says it and how Weft does. Both sides' texts see the same operands under the same names;
pictures are (n, channels, rows, columns) for PyTorch and (n, rows, columns, channels) for Weft, each side's own layout."""
import numpy as np

SIDE, MATRIX = 1024, 512


class Made:
    """Operands by name, made once: x, y, z in (0.1, 0.9), s, t signed, p above 1, v a row, m, n matrices, d positive definite, i, j whole numbers,
    b, c of bool, image, kernel and so on."""

    def __init__(self):
        rng = np.random.default_rng(1)
        part = lambda *shape: rng.uniform(0.1, 0.9, shape).astype("f4")  # noqa: E731
        signed = lambda *shape: rng.normal(0, 1, shape).astype("f4")  # noqa: E731
        square = (SIDE, SIDE)
        m = signed(MATRIX, MATRIX)
        self.plain = {
            "x": part(*square), "y": part(*square), "z": part(*square), "s": signed(*square), "t": signed(*square), "p": 1 + part(*square),
            "row": part(SIDE), "v": part(SIDE * SIDE), "few": part(4096), "m": m, "n": signed(MATRIX, MATRIX),
            "d": (m @ m.T / MATRIX + np.eye(MATRIX)).astype("f4"), "low": np.tril(part(MATRIX, MATRIX) / MATRIX + np.eye(MATRIX)).astype("f4"),
            "i": rng.integers(1, 1000, square).astype("i4"), "j": rng.integers(1, 8, square).astype("i4"), "b": rng.random(square) < 0.5,
            "c": rng.random(square) < 0.5, "three": part(3, SIDE * SIDE // 3), "sorted": np.sort(part(SIDE)), "scale": part(64),
            "whole_n": rng.integers(0, 5, square).astype("f4"),
        }
        # Indices: i64 for PyTorch, i32 for Weft.
        self.indices = {
            "places": rng.integers(0, SIDE, SIDE), "inner": rng.integers(0, SIDE, square), "labels": rng.integers(0, SIDE, SIDE),
            "ids": rng.integers(0, SIDE, 4096), "all_places": rng.permutation(SIDE * SIDE), "repeats": np.full(SIDE, 2),
        }
        self.pictures = {"image": signed(1, 16, 256, 256), "small": part(1, 64, 64, 64), "kernel": None}
        self.kernel = signed(16, 16, 3, 3)

    def torch(self, torch):
        # Texts of these names alone are evaluated.
        made = {name: torch.from_numpy(a.copy()) for name, a in self.plain.items()}
        made.update({name: torch.from_numpy(a.astype("i8")) for name, a in self.indices.items()})
        made.update({name: torch.from_numpy(a.copy()) for name, a in self.pictures.items() if a is not None}, kernel=torch.from_numpy(self.kernel.copy()))
        return {"torch": torch, "F": torch.nn.functional, "L": torch.linalg, "S": torch.special, **made}

    def weft(self, wf):
        made = {name: wf.tensor(a) for name, a in self.plain.items()}
        made.update({name: wf.tensor(a.astype("i4")) for name, a in self.indices.items()})
        last = lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1))  # noqa: E731
        made.update({name: wf.tensor(last(a)) for name, a in self.pictures.items() if a is not None},
                    kernel=wf.tensor(np.ascontiguousarray(self.kernel.transpose(2, 3, 1, 0))))
        return {"wf": wf, **made}


def same(names, operands="x", module="torch"):
    """Operations that both have under one name."""
    return {name: (f"{module}.{name}({operands})", f"wf.{name}({operands})") for name in names.split()}


CASES = {
    **same("abs ceil floor neg sign square trunc frac signbit round", "s"),
    **same("cos sin tan tanh exp exp2 expm1 sigmoid erf erfc sinh cosh asinh atan deg2rad rad2deg sinc", "s"),
    **same("log log2 log1p log10 sqrt rsqrt acos asin atanh digamma lgamma logit reciprocal"),
    **same("acosh", "p"),
    **same("add sub mul div atan2 hypot maximum minimum pow fmax fmin copysign nextafter logaddexp logaddexp2 xlogy eq ne lt le gt ge isclose heaviside", "x, y"),
    **same("bitwise_and bitwise_or bitwise_xor gcd lcm", "i, j"),
    **same("logical_and logical_or logical_xor", "b, c"), **same("logical_not", "b"), **same("bitwise_not", "i"),
    **same("floor_divide", "s, y"),
    **same("lerp addcmul addcdiv", "x, y, z"),
    **same("erfcx log_ndtr ndtr bessel_j0 bessel_j1 bessel_y0 bessel_y1", "x", "S"), **same("entr ndtri", "x", "S"),
    **same("xlog1py zeta", "p, y", "S"),
    "bessel_i0": ("S.i0(x)", "wf.bessel_i0(x)"), "bessel_i0e": ("S.i0e(x)", "wf.bessel_i0e(x)"), "bessel_i1": ("S.i1(x)", "wf.bessel_i1(x)"),
    "bessel_i1e": ("S.i1e(x)", "wf.bessel_i1e(x)"), "bessel_k0": ("S.modified_bessel_k0(x)", "wf.bessel_k0(x)"),
    "bessel_k1": ("S.modified_bessel_k1(x)", "wf.bessel_k1(x)"), "bessel_k0e": ("S.scaled_modified_bessel_k0(x)", "wf.bessel_k0e(x)"),
    "bessel_k1e": ("S.scaled_modified_bessel_k1(x)", "wf.bessel_k1e(x)"),
    "igamma": ("S.gammainc(p, x)", "wf.igamma(p, x)"), "igammac": ("S.gammaincc(p, x)", "wf.igammac(p, x)"),
    "polygamma": ("torch.polygamma(2, x)", "wf.polygamma(wf.full((1024, 1024), 2.0), x)"), "mvlgamma": ("torch.mvlgamma(p, 2)", "wf.mvlgamma(p, 2)"),
    "orthogonal_polynomial": ("S.legendre_polynomial_p(x, whole_n)", "wf.orthogonal_polynomial(x, whole_n, family='legendre_p')"),
    "cbrt": ("torch.pow(x, 1 / 3)", "wf.cbrt(x)"), "erf_inv": ("torch.erfinv(x)", "wf.erf_inv(x)"), "integer_pow": ("x ** 3", "wf.integer_pow(x, 3)"),
    "round_decimals": ("torch.round(s, decimals=2)", "wf.round_decimals(s, 2)"), "mod": ("torch.remainder(s, y)", "wf.mod(s, y)"),
    "rem": ("torch.fmod(s, y)", "wf.rem(s, y)"), "trunc_divide": ("torch.div(s, y, rounding_mode='trunc')", "wf.trunc_divide(s, y)"),
    "is_finite": ("torch.isfinite(x)", "wf.is_finite(x)"), "is_nan": ("torch.isnan(x)", "wf.is_nan(x)"), "is_inf": ("torch.isinf(x)", "wf.is_inf(x)"),
    "is_neg_inf": ("torch.isneginf(x)", "wf.is_neg_inf(x)"), "is_pos_inf": ("torch.isposinf(x)", "wf.is_pos_inf(x)"),
    "allclose": ("torch.allclose(x, x)", "wf.allclose(x, x)"), "angle": ("torch.angle(s)", "wf.angle(s)"),
    "ldexp": ("torch.ldexp(x, j)", "wf.ldexp(x, j)"), "frexp": ("torch.frexp(s)", "wf.frexp(s)"), "polar": ("torch.polar(x, y)", "wf.polar(x, y)"),
    "complex": ("torch.complex(x, y)", "wf.complex(x, y)"), "nan_to_num": ("torch.nan_to_num(s)", "wf.nan_to_num(s)"),
    "clamp": ("torch.clamp(s, -1, 1)", "wf.clamp(-1.0, s, 1.0)"), "clip": ("torch.clip(s, -1, 1)", "wf.clip(s, -1.0, 1.0)"),
    "compare": ("torch.lt(x, y)", "wf.compare(x, y, 'lt')"), "where": ("torch.where(b, x, y)", "wf.where(b, x, y)"),
    "masked_fill": ("torch.masked_fill(x, b, 2.0)", "wf.masked_fill(x, b, 2.0)"),
    "convert": ("x.to(torch.float64)", "wf.convert(x, 'f64')"), "bitcast_convert": ("x.view(torch.int32).clone()", "wf.bitcast_convert(x, 'i32')"),
    "shift_left": ("torch.bitwise_left_shift(i, j)", "wf.shift_left(i, j)"),
    "shift_right_arithmetic": ("torch.bitwise_right_shift(i, j)", "wf.shift_right_arithmetic(i, j)"),
    # activations, losses
    **same("celu elu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 selu silu softplus softshrink softsign tanhshrink gelu", "s", "F"),
    "gelu": ("F.gelu(s)", "wf.gelu(s)"), "threshold": ("F.threshold(s, 0.5, -1.0)", "wf.threshold(s, 0.5, -1.0)"),
    "softplus_beta": ("F.softplus(s, 2.0)", "wf.softplus_beta(s, 2.0)"), "prelu": ("F.prelu(s, row[:1])", "wf.prelu(s, row[:1])"),
    "glu": ("F.glu(s)", "wf.glu(s)"), "softmax": ("torch.softmax(s, -1)", "wf.softmax(s)"), "log_softmax": ("torch.log_softmax(s, -1)", "wf.log_softmax(s)"),
    "softmin": ("F.softmin(s, -1)", "wf.softmin(s)"), "logsumexp": ("torch.logsumexp(s, -1)", "wf.logsumexp(s, [-1])"),
    "bce": ("F.binary_cross_entropy(x, y)", "wf.bce(x, y)"), "bce_with_logits": ("F.binary_cross_entropy_with_logits(s, y)", "wf.bce_with_logits(s, y)"),
    "gaussian_nll": ("F.gaussian_nll_loss(x, y, z)", "wf.gaussian_nll(x, y, z)"), "huber": ("F.huber_loss(s, t)", "wf.huber(s, t)"),
    "kl_div": ("F.kl_div(s, y, reduction='mean')", "wf.kl_div(s, y)"), "l1": ("F.l1_loss(s, t)", "wf.l1(s, t)"), "mse": ("F.mse_loss(s, t)", "wf.mse(s, t)"),
    "margin_ranking": ("F.margin_ranking_loss(s, t, x)", "wf.margin_ranking(s, t, x)"),
    "pairwise_distance": ("F.pairwise_distance(s, t)", "wf.pairwise_distance(s, t)"), "poisson_nll": ("F.poisson_nll_loss(s, y)", "wf.poisson_nll(s, y)"),
    "smooth_l1": ("F.smooth_l1_loss(s, t)", "wf.smooth_l1(s, t)"), "soft_margin": ("F.soft_margin_loss(s, t)", "wf.soft_margin(s, t)"),
    "triplet_margin": ("F.triplet_margin_loss(s, t, x)", "wf.triplet_margin(s, t, x)"),
    "cosine_similarity": ("F.cosine_similarity(s, t, 1)", "wf.cosine_similarity(s, t, axis=1)"),
    "hinge_embedding": ("F.hinge_embedding_loss(s, torch.sign(t))", "wf.hinge_embedding(s, wf.sign(t))"),
    "cross_entropy": ("F.cross_entropy(s, labels)", "wf.cross_entropy(s, labels)"), "nll": ("F.nll_loss(s, labels)", "wf.nll(s, labels)"),
    "multi_margin": ("F.multi_margin_loss(s, labels)", "wf.multi_margin(s, labels)"),
    "soft_cross_entropy": ("F.cross_entropy(s, y)", "wf.soft_cross_entropy(s, y)"),
    "multilabel_soft_margin": ("F.multilabel_soft_margin_loss(s, y)", "wf.multilabel_soft_margin(s, y)"),
    # reductions, order
    **same("sum mean prod max min", "x"), **same("all any", "b"), **same("nansum nanmean", "x"),
    "argmax": ("torch.argmax(s, -1)", "wf.argmax(s)"), "argmin": ("torch.argmin(s, -1)", "wf.argmin(s)"), "aminmax": ("torch.aminmax(s)", "wf.aminmax(s)"),
    "var": ("torch.var(s, -1)", "wf.var(s, [-1], correction=1)"), "std": ("torch.std(s, -1)", "wf.std(s, [-1], correction=1)"),
    "var_mean": ("torch.var_mean(s, -1)", "wf.var_mean(s, [-1], correction=1)"), "std_mean": ("torch.std_mean(s, -1)", "wf.std_mean(s, [-1], correction=1)"),
    "norm": ("L.vector_norm(s)", "wf.norm(s)"), "count_nonzero": ("torch.count_nonzero(s)", "wf.count_nonzero(s)"), "trace": ("torch.trace(s)", "wf.trace(s)"),
    **{name: (f"torch.{name}(x, -1)", f"wf.{name}(x)") for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")},
    "sort": ("torch.sort(s, -1)", "wf.sort(s)"), "argsort": ("torch.argsort(s, -1)", "wf.argsort(s)"), "top_k": ("torch.topk(s, 8)", "wf.top_k(s, 8)"),
    "kthvalue": ("torch.kthvalue(s, 100)", "wf.kthvalue(s, 100)"), "median": ("torch.median(s, -1)", "wf.median(s)"),
    "nanmedian": ("torch.nanmedian(s, -1)", "wf.nanmedian(s)"), "most_frequent": ("torch.mode(j, -1)", "wf.most_frequent(j)"),
    "quantile": ("torch.quantile(s, 0.3, -1)", "wf.quantile(s, 0.3, axis=-1)"), "nanquantile": ("torch.nanquantile(s, 0.3, -1)", "wf.nanquantile(s, 0.3, axis=-1)"),
    "histc": ("torch.histc(v, 100, 0.0, 1.0)", "wf.histc(v, 100, 0.0, 1.0)"), "bincount": ("torch.bincount(ids, minlength=1024)", "wf.bincount(ids, length=1024)"),
    "searchsorted": ("torch.searchsorted(sorted, x)", "wf.searchsorted(sorted, x)"), "isin": ("torch.isin(i, j[0])", "wf.isin(i, j[0])"),
    "trapezoid": ("torch.trapezoid(s)", "wf.trapezoid(s)"), "cumulative_trapezoid": ("torch.cumulative_trapezoid(s)", "wf.cumulative_trapezoid(s)"),
    "diff": ("torch.diff(s)", "wf.diff(s)"), "renorm": ("torch.renorm(s, 2, 0, 1.0)", "wf.renorm(s, 2.0, 0, 1.0)"),
    # places
    "broadcast_to": ("row.broadcast_to(1024, 1024).clone()", "wf.broadcast_to(row, (1024, 1024))"), "concatenate": ("torch.cat((x, y))", "wf.concatenate((x, y))"),
    "stack": ("torch.stack((x, y))", "wf.stack((x, y))"), "transpose": ("x.T.contiguous()", "wf.transpose(x, (1, 0))"), "reverse": ("torch.flip(x, (1,))", "wf.reverse(x, (1,))"),
    "roll": ("torch.roll(x, 5, 1)", "wf.roll(x, [5], [1])"), "tril": ("torch.tril(x)", "wf.tril(x)"), "triu": ("torch.triu(x)", "wf.triu(x)"),
    "tile": ("row.tile(1024, 1)", "wf.tile(row, (1024, 1))"), "rot90": ("torch.rot90(x).contiguous()", "wf.rot90(x)"),
    "repeat_interleave": ("torch.repeat_interleave(x, 2, 0)", "wf.repeat_interleave(x, 2)"),
    "repeat_interleave_static": ("torch.repeat_interleave(x, repeats, 0)", "wf.repeat_interleave_static(x, repeats, total=2048)"),
    "pad": ("F.pad(x, (3, 3, 3, 3))", "wf.pad(x, 0.0, (3, 3), (3, 3), (0, 0))"), "slice": ("x[2:, 2:].contiguous()", "wf.slice(x, (2, 2), (1024, 1024), (1, 1))"),
    "slice_in_dim": ("x[:, 2:].contiguous()", "wf.slice_in_dim(x, 1, 2)"), "slice_scatter": ("torch.slice_scatter(x, y[:512], 0, 0, 512)", "wf.slice_scatter(x, y[:512], 0, 0, 512)"),
    "select_scatter": ("torch.select_scatter(x, row, 0, 3)", "wf.select_scatter(x, row, 3)"), "unfold": ("x.unfold(1, 16, 8).contiguous()", "wf.unfold(x, 16, 8, 1)"),
    "as_strided": ("torch.as_strided(x, (1024, 1024), (1, 1024)).contiguous()", "wf.as_strided(x, (1024, 1024), (1, 1024))"),
    "as_strided_scatter": ("torch.as_strided_scatter(x, y, (1024, 1024), (1, 1024))", "wf.as_strided_scatter(x, y, (1024, 1024), (1, 1024))"),
    "movedim": ("torch.movedim(x, 0, 1).contiguous()", "wf.movedim(x, [0], [1])"), "diag": ("torch.diag(row)", "wf.diag(row)"),
    "diagonal": ("torch.diagonal(x).contiguous()", "wf.diagonal(x)"), "diag_embed": ("torch.diag_embed(row)", "wf.diag_embed(row)"),
    "diagonal_scatter": ("torch.diagonal_scatter(x, row)", "wf.diagonal_scatter(x, row)"), "block_diag": ("torch.block_diag(m, n)", "wf.block_diag([m, n])"),
    "take": ("torch.index_select(x, 0, places)", "wf.take(x, places)"), "take_along_axis": ("torch.gather(x, 1, inner)", "wf.take_along_axis(x, inner, 1)"),
    "index": ("x[places, places]", "wf.index(x, [places, places], dims=[0, 1])"),
    "index_put": ("torch.index_put(x, (places,), y)", "wf.index_put(x, y, [places], dims=[0])"),
    "index_add": ("torch.index_add(x, 0, places, y)", "wf.index_add(x, places, y)"), "index_copy": ("torch.index_copy(x, 0, places, y)", "wf.index_copy(x, places, y)"),
    "index_fill": ("torch.index_fill(x, 0, places, 2.0)", "wf.index_fill(x, places, 2.0)"),
    "index_reduce": ("torch.index_reduce(x, 0, places, y, 'amax')", "wf.index_reduce(x, places, y, reducer='max')"),
    "put": ("torch.put(x, all_places, v)", "wf.put(x, all_places, v)"), "masked_scatter": ("torch.masked_scatter(x, b, y)", "wf.masked_scatter(x, b, y)"),
    "scatter_reduce": ("torch.scatter_reduce(x, 1, inner, y, 'sum')", "wf.scatter_reduce(x, inner, y, reducer='sum', axis=1)"),
    "embedding": ("F.embedding(ids, x)", "wf.embedding(x, ids)"), "one_hot": ("F.one_hot(places, 1024)", "wf.one_hot(places, 1024)"),
    "cartesian_prod": ("torch.cartesian_prod(row, row)", "wf.cartesian_prod([row, row])"), "combinations": ("torch.combinations(row)", "wf.combinations(row)"),
    "meshgrid": ("torch.stack(torch.meshgrid(row, row, indexing='ij'))", "wf.stack(wf.meshgrid(row, row))"),
    # products, factors
    "matmul": ("m @ n", "wf.matmul(m, n)"), "addmm": ("torch.addmm(m, n, d)", "wf.addmm(m, n, d)"), "linear": ("F.linear(m, n)", "wf.linear(m, wf.transpose(n, (1, 0)))"),
    "einsum": ("torch.einsum('ij,jk->ik', m, n)", "wf.einsum([m, n], 'ij,jk->ik')"), "tensordot": ("torch.tensordot(m, n, 1)", "wf.tensordot(m, n, [1], [0])"),
    "kron": ("torch.kron(m[:32, :32], n[:32, :32])", "wf.kron(m[:32, :32], n[:32, :32])"), "cross": ("torch.cross(three, three, 0)", "wf.cross(three, three, axis=0)"),
    "vecdot": ("L.vecdot(s, t)", "wf.vecdot(s, t)"), "cdist": ("torch.cdist(m, n)", "wf.cdist(m, n)"), "pdist": ("F.pdist(m)", "wf.pdist(m)"),
    "corrcoef": ("torch.corrcoef(m)", "wf.corrcoef(m)"), "cov": ("torch.cov(m)", "wf.cov(m)"), "vander": ("torch.vander(row, 64)", "wf.vander(row, 64)"),
    "matrix_power": ("L.matrix_power(m / 30, 5)", "wf.matrix_power(m / 30.0, 5)"), "matrix_exp": ("torch.matrix_exp(m / 30)", "wf.matrix_exp(m / 30.0)"),
    **{name: (f"L.{name}({a})", f"wf.{name}({a})") for name, a in
       (("eigh", "d"), ("eigvalsh", "d"), ("eig", "m"), ("eigvals", "m"), ("svdvals", "m"), ("inv", "m"), ("det", "m"), ("slogdet", "m"), ("pinv", "m"),
        ("matrix_rank", "m"), ("matrix_norm", "m"), ("qr", "m"))},
    "cond": ("L.cond(m)", "wf.linalg.cond(m)"),
    "cholesky": ("L.cholesky(d)", "wf.cholesky(d)"), "lu": ("torch.linalg.lu_factor(m)", "wf.lu(m)"), "svd": ("L.svd(m, False)", "wf.svd(m)"), "logdet": ("torch.logdet(d)", "wf.logdet(d)"),
    "solve": ("L.solve(m, n)", "wf.solve(m, n)"), "lstsq": ("L.lstsq(m, n, driver='gelsd')", "wf.lstsq(m, n)"),
    "triangular_solve": ("L.solve_triangular(low, n, upper=False)", "wf.triangular_solve(low, n, lower=True)"),
    "cholesky_solve": ("torch.cholesky_solve(n, low)", "wf.cholesky_solve(low, n)"), "cholesky_inverse": ("torch.cholesky_inverse(low)", "wf.cholesky_inverse(low)"),
    "geqrf": ("torch.geqrf(m)", "wf.geqrf(m)"), "householder_product": ("L.householder_product(low, row[:512])", "wf.householder_product(low, row[:512])"),
    "fft": ("torch.fft.rfft(s)", "wf.fft.rfft(s)"),
    # networks
    "conv": ("F.conv2d(image, kernel, padding=1)", "wf.conv(image, kernel, padding='same')"),
    "conv_transpose": ("F.conv_transpose2d(image, kernel, padding=1)", "wf.conv_transpose(image, kernel, pads=[1, 1, 1, 1])"),
    "avg_pool": ("F.avg_pool2d(image, 2)", "wf.avg_pool(image, (2, 2))"), "max_pool": ("F.max_pool2d(image, 2)", "wf.max_pool(image, (2, 2))"),
    "max_pool_with_indices": ("F.max_pool2d(image, 2, return_indices=True)", "wf.max_pool_with_indices(image, (2, 2))"),
    "lp_pool": ("F.lp_pool2d(image, 2.0, 2)", "wf.lp_pool(image, (2, 2), p=2.0)"),
    "adaptive_avg_pool": ("F.adaptive_avg_pool2d(image, (7, 7))", "wf.adaptive_avg_pool(image, (7, 7))"),
    "adaptive_max_pool": ("F.adaptive_max_pool2d(image, (7, 7))", "wf.adaptive_max_pool(image, (7, 7))"),
    "im2col": ("F.unfold(small, 3)", "wf.im2col(small, (3, 3))"), "batch_norm": ("F.batch_norm(small, None, None, scale, scale, training=True)", "wf.batch_norm(small, scale, scale)"),
    "layer_norm": ("F.layer_norm(s, (1024,), row, row)", "wf.layer_norm(s, row, row)"), "rms_norm": ("F.rms_norm(s, (1024,), row)", "wf.rms_norm(s, row)"),
    "group_norm": ("F.group_norm(small, 8, scale, scale)", "wf.group_norm(small, 8, scale, scale)"), "instance_norm": ("F.instance_norm(small)", "wf.instance_norm(small)"),
    "local_response_norm": ("F.local_response_norm(small, 5)", "wf.local_response_norm(small, 5)"),
    "resize": ("F.interpolate(image, (384, 384), mode='bilinear')", "wf.resize(image, (384, 384), mode='linear')"),
    "pad_reflect": ("F.pad(image, (3, 3, 3, 3), 'reflect')", "wf.pad_reflect(image, (0, 3, 3, 0), (0, 3, 3, 0))"),
    "pad_replicate": ("F.pad(image, (3, 3, 3, 3), 'replicate')", "wf.pad_replicate(image, (0, 3, 3, 0), (0, 3, 3, 0))"),
    "pad_circular": ("F.pad(image, (3, 3, 3, 3), 'circular')", "wf.pad_circular(image, (0, 3, 3, 0), (0, 3, 3, 0))"),
    "pixel_shuffle": ("F.pixel_shuffle(image, 2)", "wf.pixel_shuffle(image, 2)"), "pixel_unshuffle": ("F.pixel_unshuffle(image, 2)", "wf.pixel_unshuffle(image, 2)"),
    "channel_shuffle": ("F.channel_shuffle(image, 4)", "wf.channel_shuffle(image, 4)"),
    "scaled_dot_product_attention": ("F.scaled_dot_product_attention(small, small, small)", "wf.scaled_dot_product_attention(small, small, small)"),
}
# Operations of CASES whose time is above the limit, and why.
REASONS = {
    **dict.fromkeys(("trace", "nll", "diagonal", "index"), "an operation on some thousand elements: 10 to 20 µs are what recording, finding and launching a program costs"),
    **dict.fromkeys(("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "ndtr", "lgamma", "mvlgamma"),
                    "computed in f64 and rounded once, all pieces at every element; PyTorch computes f32 in f32"),
    "kron": "an outer product whose axes change places afterwards: rows of 32 elements", "meshgrid": "two grids and their stack, whose loop chooses a grid for each element; PyTorch copies rows",
    "fft": "products with the transform's matrices by factors of the length, which every backend has; PyTorch calls a library of FFTs",
    "pdist": "gathers both rows of each of 130,816 pairs; PyTorch reads them in place",
    "as_strided": "a gather with an index for each element, though strides are known", "unfold": "a gather of each window's elements, though strides are known",
    "rot90": "a transposition of reversed rows, element by element", "reverse": "reads backwards element by element; PyTorch turns vectors round",
    "channel_shuffle": "channels are last: a transposition of 4 by 4 single elements in each pixel; PyTorch moves planes",
    "top_k": "sorts whole rows, as sort does, for 8 elements of them",
    **dict.fromkeys(("cummax", "cummin"), "values and positions in ten passes that double the distance, fused; PyTorch keeps both in registers along a row"),
    **dict.fromkeys(("pad_reflect", "pad_replicate", "pad_circular"), "a piece for each edge and the middle, put together by copies, once for each axis"),
    "group_norm": "channels are last: a group is 8 of 64 channels of each pixel, 32 bytes at a time",
    "complex": "puts two planes together element by element",
    "slice_scatter": "pads the part and chooses by place in one loop; PyTorch copies blocks of memory",
}
# What has no case: random numbers and constants, what PyTorch says by views alone, twins of an operation that has one, and what it has not.
WITHOUT = """stop_gradient conj clz imag real popcount reduce_precision round_away arange broadcast_in_dim dynamic_slice dynamic_update_slice expand_dims flatten full gather iota
linspace reshape scatter squeeze reduce boolean_mask_static masked_select_static nonzero_static unique_static dot_general convolution reduce_window select_and_scatter
batch_norm_grad batch_norm_training batch_norm_inference dropout bernoulli categorical normal rng_bit_generator uniform shift_right_logical cosine_embedding
multilabel_margin col2im max_unpool affine_grid grid_sample ragged_dot lu_solve ormqr batch_norm_running tensorsolve tensorinv ctc_loss embedding_bag gru histogram lstm
multi_head_attention rnn unique_consecutive_static weight_norm eye logspace tril_indices triu_indices window bernoulli_of beta binomial cauchy dirichlet
exponential gamma geometric gumbel laplace log_normal multinomial normal_of poisson randint randperm truncated_normal amp_non_finite_check_and_unscale
amp_update_scale""".split()
