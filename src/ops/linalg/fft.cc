// fft: discrete Fourier transforms over the last dimensions, as matrix products. A length n = n1 n2 is n2 transforms of length
// n1, factors of modulus 1, and n1 transforms of length n2 (Cooley and Tukey, 1965); short lengths are products with the matrix
// of the transform; a long prime is a convolution, by transforms of a power of two (Bluestein, 1970). So every backend has it,
// and what is known of products holds here.
#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <numbers>

#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/complex.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

enum Transform : int64_t { kForward, kInverse, kRealForward, kRealInverse };
constexpr std::string_view kTransforms[] = {"FFT", "IFFT", "RFFT", "IRFFT"};

constexpr OperandDef kOperands[] = {{"x", kF | kC, "complex; f32 or f64 for RFFT"}};
constexpr AttrDef kAttrs[] = {
    {"fft_type",
     AttrType::kEnum,
     "FFT; IFFT, the inverse; RFFT of floats, the first half of a symmetric result; IRFFT, its inverse",
     true,
     {},
     kTransforms},
    {"fft_length", AttrType::kInts, "sizes of the last one to three dimensions; of irfft those of the result", true}};

// The longest transform that is one product, and the longest prime that is.
constexpr int64_t kLongestFactor = 64, kLongestPrime = 256;
// Its factors of modulus 1 are literals.
constexpr int64_t kLongest = int64_t{1} << 24;

absl::Status Infer(const InferCall& call, Types* results) {
  const auto transform = static_cast<Transform>(Attr<kAttrs, "fft_type">(call.attrs));
  const Ints& lengths = Attr<kAttrs, "fft_length">(call.attrs);
  const ir::Type& x = *call.operands[0];
  const bool real = transform == kRealForward;
  if (real ? (x.dtype != DType::kF32 && x.dtype != DType::kF64) : !IsComplex(x.dtype)) {
    return UserError("fft_type ", kTransforms[transform], " takes ", real ? "f32 or f64" : "c64 or c128", ", not ",
                     NameOf(x.dtype));
  }
  if (lengths.empty() || lengths.size() > 3 || lengths.size() > x.rank()) {
    return UserError("fft_length has ", lengths.size(), " sizes; it has one to three, and x has rank ", x.rank());
  }
  Dims dims = x.dims;
  for (size_t i = 0; i < lengths.size(); ++i) {
    int64_t& dim = dims[x.rank() - lengths.size() + i];
    const bool halved = transform == kRealInverse && i + 1 == lengths.size();
    const int64_t wanted = halved ? lengths[i] / 2 + 1 : lengths[i];
    if (lengths[i] < 1)
      return UserError("fft_length[", i, "] is ", lengths[i], "; transforms have at least one element");
    if (dim != wanted) {
      return UserError("fft_length[", i, "] is ", lengths[i], ", for which x has ", wanted, " elements there; it has ",
                       dim);
    }
    if (lengths[i] > kLongest) {
      return UserError("fft_length[", i, "] is ", lengths[i], "; transforms have at most ", kLongest,
                       " elements a dimension");
    }
    if (halved) dim = lengths[i];
  }
  if (real) dims.back() = dims.back() / 2 + 1;
  const DType dtype = real ? ComplexOf(x.dtype) : transform == kRealInverse ? PartOf(x.dtype) : x.dtype;
  results->push_back(ir::Type::Tensor(dtype, dims));
  return absl::OkStatus();
}

// --- On the host: what stands in programs as literals ---------------------------------------------------------------------

using Complex = std::complex<double>;

// e^(2πi r / n); r is reduced first, so that it is as exact for large ones.
Complex Root(int64_t r, int64_t n) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(r % n) / static_cast<double>(n);
  return {std::cos(angle), std::sin(angle)};
}

// In place, of a power of two; `sign` of the exponent.
void TransformOnHost(std::vector<Complex>& x, int sign) {
  const size_t n = x.size();
  for (size_t i = 1, j = 0; i < n; ++i) {
    size_t bit = n >> 1;
    for (; (j & bit) != 0; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(x[i], x[j]);
  }
  for (size_t length = 2; length <= n; length *= 2) {
    for (size_t k = 0; k < length / 2; ++k) {
      const Complex root = Root(static_cast<int64_t>(k), static_cast<int64_t>(length));
      const Complex w = sign > 0 ? root : std::conj(root);
      for (size_t start = 0; start < n; start += length) {
        const Complex even = x[start + k], odd = x[start + k + length / 2] * w;
        x[start + k] = even + odd;
        x[start + k + length / 2] = even - odd;
      }
    }
  }
}

// --- In the program -------------------------------------------------------------------------------------------------------

// Planes without `im` are real.
struct Transformer {
  Builder& b;
  DType dtype;

  template <typename At>
  Value Literal(const Dims& dims, At&& at) {
    HostTensor value(dtype, dims);
    for (int64_t i = 0; i < value.count(); ++i) value.SetDouble(i, at(i));
    return Constant(b, std::move(value));
  }

  // By constants along the last dimensions.
  template <typename At>
  Planes Times(const Planes& x, const Dims& dims, At&& at) {
    const auto constant = [&](bool imaginary) {
      const Value plane = Literal(dims, [&](int64_t i) { return imaginary ? at(i).imag() : at(i).real(); });
      return plane && x.re ? BroadcastTo(b, plane, x.re.dims()) : Value();
    };
    const Value c = constant(false), s = constant(true);
    if (!x.im) return {Mul(b, x.re, c), Mul(b, x.re, s)};
    return {Sub(b, Mul(b, x.re, c), Mul(b, x.im, s)), Add(b, Mul(b, x.re, s), Mul(b, x.im, c))};
  }

  template <typename F>
  Planes Each(const Planes& x, F&& f) {
    return {f(x.re), x.im ? f(x.im) : Value()};
  }

  // The two dimensions before the end change places.
  Planes Turned(const Planes& x) {
    return Each(x, [&](const Value& plane) {
      if (!plane) return Value();
      Ints order = Axes(plane.dims().size());
      std::swap(order[order.size() - 1], order[order.size() - 2]);
      return Transpose(b, plane, order);
    });
  }

  // The last dimension as these.
  Planes Shaped(const Planes& x, size_t last, const Dims& dims) {
    return Each(x, [&](const Value& plane) {
      if (!plane) return Value();
      Dims all(plane.dims().begin(), plane.dims().end() - static_cast<ptrdiff_t>(last));
      all.insert(all.end(), dims.begin(), dims.end());
      return Reshape(b, plane, all);
    });
  }

  // Elements [start, limit) of the last dimension.
  Value Part(const Value& x, int64_t start, int64_t limit) {
    if (!x) return {};
    Ints from(x.dims().size(), 0), to(x.dims().begin(), x.dims().end()), steps(x.dims().size(), 1);
    from.back() = start, to.back() = limit;
    return Slice(b, x, from, to, steps);
  }
  Value Joined(const Value& x, const Value& y) {
    if (!x || !y) return {};
    return Call(b, kOp_concatenate, {x, y}, {static_cast<int64_t>(x.dims().size()) - 1});
  }

  // Both planes in one product: [re im] [[c, s], [-s, c]].
  Planes ByMatrix(const Planes& x, int64_t n, int sign) {
    const int64_t rows = x.im ? 2 * n : n;
    const Value matrix = Literal({rows, 2 * n}, [&](int64_t i) {
      const int64_t row = i / (2 * n), column = i % (2 * n);
      const Complex root = Root(row % n * (column % n), n);
      const double sine = sign * root.imag();
      if ((row < n) == (column < n)) return root.real();
      return row < n ? sine : -sine;
    });
    const Value both = x.im ? Joined(x.re, x.im) : x.re;
    if (!both || !matrix) return {};
    const auto last = static_cast<int64_t>(both.dims().size()) - 1;
    const Value product = Call(b, kOp_dot_general, {both, matrix}, {Ints{}, Ints{}, Ints{last}, Ints{0}});
    return {Part(product, 0, n), Part(product, n, 2 * n)};
  }

  // With w[j] = e^(πi j² / n): X[k] = w[k] Σ (x[j] w[j]) conj(w[k - j]), a convolution.
  Planes ByConvolution(const Planes& x, int64_t n, int sign) {
    const auto m = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * n - 1)));
    const auto w = [&](int64_t j) {
      const Complex root = Root(static_cast<int64_t>(static_cast<__int128>(j) * j % (2 * n)), 2 * n);
      return sign > 0 ? root : std::conj(root);
    };
    std::vector<Complex> chirp(static_cast<size_t>(m));
    for (int64_t j = 0; j < n; ++j)
      chirp[static_cast<size_t>(j)] = chirp[static_cast<size_t>((m - j) % m)] = std::conj(w(j));
    TransformOnHost(chirp, -1);
    const Planes padded = Each(Times(x, {n}, w), [&](const Value& plane) {
      if (!plane) return Value();
      Ints none(plane.dims().size(), 0), high = none;
      high.back() = m - n;
      return Pad(b, plane, 0, none, high, none);
    });
    const Planes product = Times(Dft(padded, m, -1), {m},
                                 [&](int64_t k) { return chirp[static_cast<size_t>(k)] / static_cast<double>(m); });
    const Planes sums = Each(Dft(product, m, 1), [&](const Value& plane) { return Part(plane, 0, n); });
    return Times(sums, {n}, w);
  }

  // Along the last dimension, of n elements; `sign` of the exponent. Recursive in the factors of n.
  Planes Dft(const Planes& x, int64_t n, int sign) {
    if (!b.ok() || n <= 1) return x.im || !b.ok() ? x : Planes{x.re, FullLike(b, x.re, 0)};
    if (n <= kLongestFactor) return ByMatrix(x, n, sign);
    int64_t n1 = 1;
    for (int64_t factor = kLongestFactor; factor > 1 && n1 == 1; --factor) n1 = n % factor == 0 ? factor : 1;
    for (int64_t factor = kLongestFactor + 1; n1 == 1 && factor * factor <= n; ++factor) {
      if (n % factor == 0) n1 = factor;
    }
    if (n1 == 1) return n <= kLongestPrime ? ByMatrix(x, n, sign) : ByConvolution(x, n, sign);
    const int64_t n2 = n / n1;
    // x[j1 n2 + j2] to X[k1 + n1 k2].
    const Planes inner = Dft(Turned(Shaped(x, 1, {n1, n2})), n1, sign);
    const Planes turned = Turned(Times(inner, {n2, n1}, [&](int64_t i) {
      const Complex root = Root(i / n1 * (i % n1), n);
      return sign > 0 ? root : std::conj(root);
    }));
    return Shaped(Turned(Dft(turned, n2, sign)), 2, {n});
  }

  // Along any dimension.
  Planes Along(const Planes& x, size_t dim, int sign) {
    if (!b.ok()) return x;
    const size_t last = x.re.dims().size() - 1;
    Ints order = Axes(last + 1);
    std::swap(order[dim], order[last]);
    const auto swap = [&](const Planes& planes) {
      return Each(planes, [&](const Value& plane) { return plane ? Transpose(b, plane, order) : Value(); });
    };
    const int64_t n = x.re.dims()[dim];
    return dim == last ? Dft(x, n, sign) : swap(Dft(swap(x), n, sign));
  }
};

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const auto transform = static_cast<Transform>(Attr<kAttrs, "fft_type">(call.attrs));
  const Ints& lengths = Attr<kAttrs, "fft_length">(call.attrs);
  const Value& x = call.operands[0];
  const bool inverse = transform == kInverse || transform == kRealInverse;
  const int sign = inverse ? 1 : -1;
  const size_t rank = x.dims().size(), last = rank - 1, first = rank - lengths.size();
  Transformer t{b, PartOf(x.dtype())};
  Planes planes = transform == kRealForward ? Planes{x, {}} : PlanesOf(b, x);
  if (transform != kRealInverse) {
    planes = t.Along(planes, last, sign);
    if (transform == kRealForward) {
      planes = t.Each(planes, [&](const Value& plane) { return t.Part(plane, 0, lengths.back() / 2 + 1); });
    }
  }
  for (size_t dim = first; dim < last; ++dim) planes = t.Along(planes, dim, sign);
  if (transform == kRealInverse) {
    // The other half is this one's mirror, conjugated.
    const int64_t half = lengths.back() / 2 + 1, rest = lengths.back() - half;
    const auto mirrored = [&](const Value& plane) {
      const Value part = t.Part(plane, 1, 1 + rest);
      return part ? Reverse(b, part, {static_cast<int64_t>(last)}) : Value();
    };
    if (rest > 0) {
      planes = {t.Joined(planes.re, mirrored(planes.re)), t.Joined(planes.im, Neg(b, mirrored(planes.im)))};
    } else if (rest < 0) {
      planes = t.Each(planes, [&](const Value& plane) { return t.Part(plane, 0, lengths.back()); });
    }
    planes = t.Along(planes, last, sign);
  }
  if (inverse) {
    double count = 1;
    for (const int64_t length : lengths) count *= static_cast<double>(length);
    planes = t.Each(planes, [&](const Value& plane) { return Mul(b, plane, count == 0 ? 1 : 1 / count); });
  }
  results[0] = transform == kRealInverse ? planes.re : ComplexFrom(b, planes);
  return absl::OkStatus();
}

// The matrices of FFT and IFFT are symmetric, so that each is its own transpose. RFFT is the first half of FFT's, and IRFFT the
// same divided by n and conjugated, with twice what stands for two elements.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const auto transform = static_cast<Transform>(Attr<kAttrs, "fft_type">(call.node.attrs()));
  const Ints& lengths = Attr<kAttrs, "fft_length">(call.node.attrs());
  const Value& g = call.cotangents[0];
  const auto apply = [&](Transform t, const Value& v) {
    return Call(b, kOp_fft, {v}, {static_cast<int64_t>(t), lengths});
  };
  if (transform == kForward || transform == kInverse) {
    grads[0] = apply(transform, g);
    return absl::OkStatus();
  }
  const int64_t n = lengths.back(), half = n / 2 + 1;
  if (transform == kRealForward) {
    Ints none(g.dims().size(), 0), high = none;
    high.back() = n - half;
    grads[0] = Unary(b, kOp_real, apply(kForward, Pad(b, g, 0, none, high, none)));
    return absl::OkStatus();
  }
  double count = 1;
  for (const int64_t length : lengths) count *= static_cast<double>(length);
  HostTensor weights(g.dtype(), {half});
  for (int64_t k = 0; k < half; ++k) weights.SetDouble(k, (k == 0 || 2 * k == n ? 1 : 2) / count);
  const Planes planes = PlanesOf(b, apply(kRealForward, g));
  if (!b.ok()) return b.status();
  const Value by = BroadcastTo(b, Constant(b, std::move(weights)), planes.re.dims());
  grads[0] = ComplexFrom(b, {Mul(b, planes.re, by), Neg(b, Mul(b, planes.im, by))});
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const auto transform = static_cast<size_t>(Attr<kAttrs, "fft_type">(node.attrs()));
  writer.Emit("fft", {{"fft_type", ShloEnum("fft_type", kTransforms[transform])},
                      {"fft_length", ShloArray(Attr<kAttrs, "fft_length">(node.attrs()))}});
}

constexpr Sample kSamples[] = {
    {"c64[2,8] fft_type=FFT fft_length=[8]"},    {"c128[3,15] fft_type=IFFT fft_length=[15]"},
    {"f32[2,12] fft_type=RFFT fft_length=[12]"}, {"f64[3,5] fft_type=RFFT fft_length=[3,5]"},
    {"c64[2,5] fft_type=IRFFT fft_length=[9]"},  {"c128[2,3,4] fft_type=IRFFT fft_length=[2,3,6]"},
    {"f32[1,1] fft_type=RFFT fft_length=[1]"},   {"c64[0,4] fft_type=FFT fft_length=[4]"},
    {"c64[192] fft_type=FFT fft_length=[192]"},  {"c64[2,263] fft_type=FFT fft_length=[263]"}};

constexpr Absent kAbsent[] = {{Part::kReference, Reason::kExpands}};

}  // namespace

constinit const OpDef kOp_fft = {
    .name = "fft",
    .c_name = "fft",
    .since = 1,
    .kind = Kind::kComposite,
    .doc =
        "Discrete Fourier transform over the last one to three dimensions. FFT: X[k] = sum of x[j] exp(-2 pi i j k / n); IFFT "
        "with the other sign, divided by the product of fft_length; RFFT of floats, whose result has the first n / 2 + 1 "
        "elements of the last dimension, the others being their conjugates; IRFFT of such a half. Any length up to 2^24, in "
        "O(n log n).",
    .example = "z = wf_fft(s, x, WEFT_FFT_TYPE_RFFT, WF_INTS(4));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .batching = BatchLeading,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = {.f32 = 2e-6, .f64 = 4e-15, .absolute = 2e-5},
    .absent = kAbsent,
};

}  // namespace weft::ops
