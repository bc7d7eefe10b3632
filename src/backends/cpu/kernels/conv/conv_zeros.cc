// See conv_zeros.h.
#include "src/backends/cpu/kernels/conv/conv_zeros.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "src/runtime/launch_look.h"

namespace weft::cpu {
namespace {

constexpr int64_t kInlineBytes = 256 << 10;  // less is looked at faster than another thread begins

// The exponent's bits of infinities and NaNs: all are set. Adding the lowest of them to such an exponent sets the sign's bit.
struct Exponent {
  uint64_t mask, lowest;
};
Exponent ExponentOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return {0x7F80, 0x80};
    case DType::kF16: return {0x7C00, 0x400};
    case DType::kF64: return {0x7FF0000000000000, 0x10000000000000};
    default: return {0x7F800000, 0x800000};
  }
}

// In vectors of so many bytes.
template <typename U, int kBytes>
[[gnu::always_inline]] inline bool AnyInVectors(Exponent exponent, const U* from, int64_t count) {
  typedef U V __attribute__((vector_size(kBytes)));
  constexpr int64_t kLanes = kBytes / sizeof(U), kStep = 4 * kLanes, kBlock = 64 * kStep;
  const auto mask = static_cast<U>(exponent.mask), lowest = static_cast<U>(exponent.lowest);
  const U sign = static_cast<U>(mask + lowest);
  const auto at = [&](int64_t i) {
    V elements;
    std::memcpy(&elements, from + i, sizeof(elements));
    return (elements & mask) + lowest;
  };
  U found = 0;
  int64_t i = 0;
  for (const int64_t whole = count / kStep * kStep; i < whole && (found & sign) == 0;) {
    V a = {}, b = {}, c = {}, d = {};
    for (const int64_t end = std::min(whole, i + kBlock); i < end; i += kStep) {
      a |= at(i);
      b |= at(i + kLanes);
      c |= at(i + 2 * kLanes);
      d |= at(i + 3 * kLanes);
    }
    a |= b;
    c |= d;
    a |= c;
    U lanes[kLanes];
    std::memcpy(lanes, &a, sizeof(a));
    for (const U lane : lanes) found = static_cast<U>(found | lane);
  }
  for (; i < count && (found & sign) == 0; ++i) found = static_cast<U>(found | ((from[i] & mask) + lowest));
  return (found & sign) != 0;
}
template <typename U>
[[gnu::target("avx2")]] bool AnyInAvx2(Exponent exponent, const U* from, int64_t count) {
  return AnyInVectors<U, 32>(exponent, from, count);
}

// The answer does not depend on the vectors, so these are the machine's own, whatever the kernels use.
template <typename U>
bool AnyIn(Exponent exponent, const void* from, int64_t count) {
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  const auto* const elements = static_cast<const U*>(from);
  return avx2 ? AnyInAvx2(exponent, elements, count) : AnyInVectors<U, 16>(exponent, elements, count);
}

bool IsNotFinite(DType dtype, const void* elements, int64_t at) {
  const Exponent exponent = ExponentOf(dtype);
  const auto is = [&]<typename U>(U) { return (static_cast<const U*>(elements)[at] & exponent.mask) == exponent.mask; };
  switch (BytesOf(dtype)) {
    case 2: return is(uint16_t{});
    case 4: return is(uint32_t{});
    default: return is(uint64_t{});
  }
}

void SetNaN(DType dtype, void* elements, int64_t at) {
  switch (dtype) {
    case DType::kBF16: static_cast<uint16_t*>(elements)[at] = 0x7FC0; break;
    case DType::kF16: static_cast<uint16_t*>(elements)[at] = 0x7E00; break;
    case DType::kF64: static_cast<double*>(elements)[at] = std::numeric_limits<double>::quiet_NaN(); break;
    default: static_cast<float*>(elements)[at] = std::numeric_limits<float>::quiet_NaN();
  }
}

bool HasInfinities(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Tells whether the forward pass reads padding: tap 0 reads it at the first output position, or the last tap at the
// last one.
bool ReadsOutside(const SpatialDim& dim) {
  return dim.lhs_dilation > 1 || dim.pad_lo > 0 ||
         (dim.out - 1) * dim.stride - dim.pad_lo + (dim.window - 1) * dim.rhs_dilation >= dim.in;
}
// Tells whether the gradient of x reads zeros: a position of x and a tap name a position in y, whose elements the
// stride spreads.
bool GathersOutside(const SpatialDim& dim) {
  return dim.stride > 1 || dim.pad_lo < (dim.window - 1) * dim.rhs_dilation ||
         (dim.in - 1) * dim.lhs_dilation + dim.pad_lo >= dim.out;
}

// Tells whether an output position reads zeros alone, through all taps.
bool IsBlind(const SpatialDim& dim) {
  for (int64_t out = 0; out < dim.out; ++out) {
    int64_t tap = 0;
    while (tap < dim.window && InputPosition(dim, out, tap) < 0) ++tap;
    if (tap == dim.window) return true;
  }
  return false;
}

// Which columns of y hold, at a pixel that reads a zero through `tap`, something that is not finite.
void MarkTap(const ConvCall& call, const Geometry& geometry, int64_t tap, uint8_t* marks) {
  const int64_t columns = call.out_channels;
  int64_t marked = 0;
  for (int64_t pixel = 0; pixel < geometry.out && marked < columns && !LaunchEnds(); ++pixel) {
    if (!MeetsZero(geometry, Direction::kWeights, pixel, tap)) continue;
    for (int64_t n = 0; n < call.batch && marked < columns; ++n) {
      const char* row = static_cast<const char*>(call.y) + (n * geometry.out + pixel) * columns * BytesOf(call.input);
      if (!AnyNotFinite(call.input, row, columns)) continue;
      for (int64_t c = 0; c < columns; ++c) {
        if (marks[c] != 0 || !IsNotFinite(call.input, row, c)) continue;
        marks[c] = 1;
        ++marked;
      }
    }
  }
}

}  // namespace

bool MeetsZeros(const ConvCall& call, Direction direction) {
  if (!HasInfinities(call.input)) return false;
  const auto* const dims = call.dims.data();
  return std::any_of(dims, dims + call.spatial_rank, direction == Direction::kData ? GathersOutside : ReadsOutside);
}

bool MeetsZero(const Geometry& geometry, Direction direction, int64_t pixel, int64_t stored_tap) {
  for (int d = kMaxSpatialDims - 1; d >= 0; --d) {
    const SpatialDim& dim = geometry.dims[d];
    const int64_t size = direction == Direction::kData ? dim.in : dim.out;
    const int64_t at = pixel % size, tap = WeightTap(dim, stored_tap % dim.window);
    pixel /= size;
    stored_tap /= dim.window;
    if (direction != Direction::kData) {
      if (InputPosition(dim, at, tap) < 0) return true;
      continue;
    }
    const int64_t from = at * dim.lhs_dilation + dim.pad_lo - tap * dim.rhs_dilation;
    if (from < 0 || from % dim.stride != 0 || from / dim.stride >= dim.out) return true;
  }
  return false;
}

bool AnyNotFinite(DType dtype, const void* elements, int64_t count) {
  const Exponent exponent = ExponentOf(dtype);
  switch (BytesOf(dtype)) {
    case 2: return AnyIn<uint16_t>(exponent, elements, count);
    case 4: return AnyIn<uint32_t>(exponent, elements, count);
    default: return AnyIn<uint64_t>(exponent, elements, count);
  }
}

bool AnyNotFinite(DType dtype, const void* elements, int64_t count, ThreadPool& pool) {
  const int64_t size = BytesOf(dtype);
  if (count * size < kInlineBytes) return AnyNotFinite(dtype, elements, count);
  std::atomic<bool> any{false};
  pool.ParallelRanges(count, [&](int64_t begin, int64_t end, int) {
    if (AnyNotFinite(dtype, static_cast<const char*>(elements) + begin * size, end - begin)) {
      any.store(true, std::memory_order_relaxed);
    }
  });
  return any.load(std::memory_order_relaxed);
}

void MarkNotFinite(const ConvCall& call, Direction direction, uint8_t* marks) {
  const int64_t taps = PadRank(call.spatial_rank, call.dims).window, outs = call.out_channels;
  const int64_t depth = call.in_channels / call.feature_groups, group_outs = outs / call.feature_groups;
  std::memset(marks, 0, static_cast<size_t>(MarkCount(call, direction)));
  for (int64_t tap = 0; tap < taps; ++tap) {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t o = 0; o < outs; ++o) {
        if (!IsNotFinite(call.input, call.w,
                         call.w_out_first ? (o * depth + k) * taps + tap : (tap * depth + k) * outs + o)) {
          continue;
        }
        marks[direction == Direction::kForward ? tap * outs + o : tap * call.in_channels + o / group_outs * depth + k] =
            1;
      }
    }
  }
}

int64_t MarksBytes(const ConvCall& call) { return 64 + (MarkCount(call, Direction::kForward) + 63) / 64 * 64; }

void PackMarks(const ConvCall& call, void* packed, ThreadPool& pool) {
  const int64_t depth = call.in_channels / call.feature_groups;
  auto* const to = static_cast<uint8_t*>(packed);
  std::memset(to, 0, static_cast<size_t>(MarksBytes(call)));
  to[0] =
      HasInfinities(call.input) && AnyNotFinite(call.input, call.w, MarkCount(call, Direction::kForward) * depth, pool);
  if (to[0] != 0) MarkNotFinite(call, Direction::kForward, to + 64);
}

const uint8_t* PackedMarks(const void* packed) {
  const auto* const from = static_cast<const uint8_t*>(packed);
  return from[0] != 0 ? from + 64 : nullptr;
}

NaNOfZeros::NaNOfZeros(const ConvCall& call, Direction direction, const uint8_t* marks)
    : call_(call),
      direction_(direction),
      geometry_(PadRank(call.spatial_rank, call.dims)),
      marks_(marks),
      columns_(direction == Direction::kForward ? call.out_channels : call.in_channels),
      pixels_(direction == Direction::kForward ? geometry_.out : geometry_.in) {
  for (int64_t tap = 0; tap < geometry_.window; ++tap) {
    const uint8_t* const of_tap = marks + tap * columns_;
    if (std::any_of(of_tap, of_tap + columns_, [](uint8_t mark) { return mark != 0; })) taps_.push_back(tap);
  }
}

void NaNOfZeros::Run(void* context, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
  const auto& self = *static_cast<const NaNOfZeros*>(context);
  const ConvCall& call = self.call_;
  void* const to = self.direction_ == Direction::kForward ? call.y : const_cast<void*>(call.x);
  for (int64_t row = row0; row < row0 + rows; ++row) {
    for (const int64_t tap : self.taps_) {
      if (!MeetsZero(self.geometry_, self.direction_, row % self.pixels_, tap)) continue;
      const uint8_t* const marks = self.marks_ + tap * self.columns_;
      for (int64_t c = col0; c < col0 + cols; ++c) {
        if (marks[c] != 0) SetNaN(call.output, to, row * self.columns_ + c);
      }
    }
  }
  if (call.epilogue.run != nullptr) call.epilogue.run(call.epilogue.context, batch, row0, rows, col0, cols);
}

void MendWeights(const ConvCall& call, ThreadPool& pool) {
  const Geometry geometry = PadRank(call.spatial_rank, call.dims);
  const int64_t depth = call.in_channels / call.feature_groups, columns = call.out_channels;
  void* const w = const_cast<void*>(call.w);
  const auto finite = [&] {  // the sums over each group's first input channel
    for (int64_t tap = 0; tap < geometry.window; ++tap) {
      const char* const row = static_cast<const char*>(w) + tap * depth * columns * BytesOf(call.output);
      if (AnyNotFinite(call.output, row, columns)) return false;
    }
    return true;
  };
  if (depth == 0 || (std::none_of(call.dims.begin(), call.dims.begin() + call.spatial_rank, IsBlind) && finite())) {
    return;
  }
  std::vector<uint8_t> marks(static_cast<size_t>(geometry.window * columns));
  pool.ParallelRanges(geometry.window, [&](int64_t begin, int64_t end, int) {
    for (int64_t tap = begin; tap < end; ++tap) MarkTap(call, geometry, tap, marks.data() + tap * columns);
  });
  for (int64_t row = 0; row < geometry.window * depth; ++row) {
    for (int64_t c = 0; c < columns; ++c) {
      if (marks[row / depth * columns + c] != 0) SetNaN(call.output, w, row * columns + c);
    }
  }
}

}  // namespace weft::cpu
