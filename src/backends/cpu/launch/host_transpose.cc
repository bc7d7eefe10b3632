// Transposes in tiles: what a vector reads along one dimension goes to as many lines of the other, which stay in cache until they
// are full. Element by element a line of memory would move for each of them.
#include <algorithm>
#include <cstring>

#include "src/backends/cpu/kernels/tiles/pack.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/launch/transpose_call.h"
#include "src/runtime/launch_look.h"

namespace weft::cpu {
namespace {

constexpr int64_t kTile = 16;
// Each of a tile's lines is on a page of its own: they are read in runs, which the processor fetches ahead.
constexpr int64_t kStrip = 512;
// Smaller boxes are not worth another thread.
constexpr int64_t kInlineBytes = 64 << 10;

TransposeCall Decode(std::span<const int64_t> params) {
  TransposeCall c;
  size_t at = 0;
  const auto next = [&] { return at < params.size() ? params[at++] : 0; };
  const auto along = [&] {
    TransposeCall::Along a;
    a.size = next();
    a.from = next();
    a.to = next();
    return a;
  };
  c.bytes = next();
  c.from_offset = next();
  c.to_offset = next();
  c.reads = along();
  c.writes = along();
  while (at < params.size()) c.others.push_back(along());
  return c;
}

template <typename T>
void CopyTile(const T* from, T* to, int64_t rows, int64_t columns, int64_t from_stride, int64_t to_stride) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

// Up to kStrip columns (positions along `reads`), over all of `writes`.
template <typename T>
void Strip(const TransposeCall& c, const T* from, T* to, int64_t columns, bool registers) {
  PieceLook look(static_cast<double>(kTile * columns * c.bytes));
  for (int64_t r = 0; r < c.writes.size && !look.Ends(); r += kTile) {
    const int64_t rows = std::min(kTile, c.writes.size - r);
    for (int64_t first = 0; first < columns; first += kTile) {
      const int64_t count = std::min(kTile, columns - first);
      const T* const source = from + r * c.writes.from + first;
      T* const destination = to + first * c.reads.to + r;
      if constexpr (sizeof(T) == 4) {
        if (registers && rows == kTile && count == kTile) {
          Transpose16Avx512(source, c.writes.from, destination, c.reads.to);
          continue;
        }
      }
      CopyTile(source, destination, rows, count, c.writes.from, c.reads.to);
    }
  }
}

template <typename T>
void Run(const TransposeCall& c, const HostCall& call) {
  const T* const from = static_cast<const T*>(call.buffers[0]) + c.from_offset;
  T* const to = static_cast<T*>(call.buffers[1]) + c.to_offset;
  const int64_t strips = (c.reads.size + kStrip - 1) / kStrip;
  int64_t tasks = strips;
  for (const TransposeCall::Along& other : c.others) tasks *= other.size;
  const bool registers = call.kernels.target().isa == Isa::kAvx512;
  const auto range = [&](int64_t begin, int64_t end, int) {
    PieceLook look(static_cast<double>(std::min(kStrip, c.reads.size) * std::min(kTile, c.writes.size) * c.bytes));
    for (int64_t task = begin; task < end && !look.Ends(); ++task) {
      const int64_t first = task % strips * kStrip;
      int64_t rest = task / strips, source = first, destination = first * c.reads.to;
      for (size_t d = c.others.size(); d-- > 0;) {
        const TransposeCall::Along& other = c.others[d];
        source += rest % other.size * other.from;
        destination += rest % other.size * other.to;
        rest /= other.size;
      }
      Strip(c, from + source, to + destination, std::min(kStrip, c.reads.size - first), registers);
    }
  };
  if (tasks * std::min(kStrip, c.reads.size) * c.writes.size * c.bytes < kInlineBytes) return range(0, tasks, 0);
  call.pool.ParallelRanges(tasks, range);
}

// Buffers: from, to.
absl::Status RunTranspose(const HostCall& call) {
  const TransposeCall c = Decode(call.params);
  switch (c.bytes) {
    case 1: Run<uint8_t>(c, call); break;
    case 2: Run<uint16_t>(c, call); break;
    case 4: Run<uint32_t>(c, call); break;
    default: Run<uint64_t>(c, call); break;
  }
  return absl::OkStatus();
}

constexpr HostKernel kKernels[] = {{"transpose", RunTranspose}};

}  // namespace

std::vector<int64_t> EncodeTranspose(const TransposeCall& c) {
  std::vector<int64_t> out = {c.bytes, c.from_offset, c.to_offset};
  const auto add = [&](const TransposeCall::Along& a) { out.insert(out.end(), {a.size, a.from, a.to}); };
  add(c.reads);
  add(c.writes);
  for (const TransposeCall::Along& other : c.others) add(other);
  return out;
}

std::span<const HostKernel> TransposeHostKernels() { return kKernels; }

}  // namespace weft::cpu
