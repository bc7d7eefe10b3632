// See box_rows.h.
#include "src/backends/cpu/launch/box_rows.h"

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

#include "src/backends/cpu/kernels/tiles/elements.h"

namespace weft::cpu {
namespace {

constexpr int64_t kOutside = -1;

// Adds what one component of the corners contributes to where boxes begin; its indices are `step` apart.
template <typename T>
void AddComponent(const BoxCall::Component& k, const T* indices, int64_t step, bool held, int64_t count, int64_t* to) {
  const int64_t most = std::max<int64_t>(0, k.limit - k.width);
  for (int64_t i = 0; i < count; ++i) {
    const T raw = indices[i * step];
    // A u64 beyond 2^63 lies beyond every end.
    int64_t at = std::cmp_greater(raw, INT64_MAX) ? INT64_MAX : static_cast<int64_t>(raw);
    if (held) at = std::clamp<int64_t>(at, 0, most);
    const bool inside = at >= 0 && at < k.limit && to[i] >= 0;
    to[i] = inside ? to[i] + at * k.operand_stride : kOutside;
  }
}

// Returns the step by which dimensions of the boxes follow one another evenly, if they do.
template <typename Stride>
std::optional<int64_t> StepOf(std::span<const BoxCall::Along> dims, Stride stride) {
  if (dims.empty()) return 0;
  const int64_t step = stride(dims.back());
  int64_t next = step;
  for (size_t d = dims.size(); d-- > 0; next *= dims[d].size) {
    if (stride(dims[d]) != next) return std::nullopt;
  }
  return step;
}

}  // namespace

BoxRows::Piece BoxRows::PieceAt(int64_t p) const {
  Piece piece;
  for (size_t d = outer.size(); d-- > 0;) {
    const int64_t i = p % outer[d].size;
    p /= outer[d].size;
    piece.operand += i * outer[d].operand_stride;
    piece.box += i * outer[d].box_stride;
  }
  return piece;
}

int64_t BoxRows::BaseOf(int64_t n) const {
  int64_t base = 0;
  for (size_t d = batch.size(); d-- > 0;) {
    base += n % batch[d].size * batch[d].operand_stride;
    n /= batch[d].size;
  }
  return base;
}

int64_t BoxRows::RegionElements() const {
  int64_t elements = run, size = boxes;
  if (boxes == 0) return elements;
  for (const BoxCall::Along& b : batch) {
    size /= b.size;
    if (size < boxes / regions) elements += (b.size - 1) * b.operand_stride;
  }
  for (const BoxCall::Component& k : corner) elements += std::max<int64_t>(0, k.limit - 1) * k.operand_stride;
  return elements;
}

void BoxRows::Find(std::span<void* const> tensors, DType index_type, int64_t begin, int64_t count, int64_t* to) const {
  const int64_t length = batch.empty() ? 1 : batch.back().size;
  const int64_t stride = batch.empty() ? 0 : batch.back().operand_stride;
  for (int64_t done = 0; done < count;) {
    const int64_t n = begin + done, some = std::min(count - done, length - n % length), first = BaseOf(n);
    int64_t* const some_to = to + done;
    for (int64_t i = 0; i < some; ++i) some_to[i] = first + i * stride;
    VisitElement(index_type, [&]<typename T>() {
      if constexpr (std::is_integral_v<T>) {
        for (const BoxCall::Component& k : corner) {
          const T* const indices = static_cast<const T*>(tensors[k.tensor]) + n * index_step + k.offset;
          AddComponent(k, indices, index_step, held, some, some_to);
        }
      }
    });
    done += some;
  }
}

BoxRows::Places BoxRows::PlacesOf() const {
  int64_t unit = 0, last = 0;  // elements before the last row
  const auto count = [&](int64_t size, int64_t stride) {
    if (size <= 1) return;
    unit = std::gcd(unit, stride);
    last += (size - 1) * stride;
  };
  for (const BoxCall::Along& b : batch) count(b.size, b.operand_stride);
  for (const BoxCall::Component& k : corner) count(k.limit, k.operand_stride);
  Places places;
  places.unit = std::max<int64_t>(1, unit);
  places.rows = last / places.unit + 1;
  return places;
}

std::optional<BoxRows> RowsOf(const BoxCall& c, bool held) {
  BoxRows rows;
  rows.held = held;
  absl::InlinedVector<BoxCall::Along, 4> batch;
  for (const BoxCall::Along& b : c.batch) {
    rows.boxes *= b.size;
    if (b.size != 1) batch.push_back(b);
  }
  const auto step = StepOf(batch, [](const BoxCall::Along& b) { return b.box_stride; });
  const auto index_step = StepOf(batch, [](const BoxCall::Along& b) { return b.index_stride; });
  if (!step || !index_step) return std::nullopt;
  rows.step = *step;
  rows.index_step = *index_step;
  // Dimensions along which the operand runs evenly, too, are one.
  for (const BoxCall::Along& b : batch) {
    int64_t size = b.size;
    if (!rows.batch.empty() && rows.batch.back().operand_stride == b.size * b.operand_stride) {
      size *= rows.batch.back().size;
      rows.batch.pop_back();
    }
    rows.batch.push_back({size, b.operand_stride, b.box_stride, b.index_stride});
  }
  size_t own = 0;  // dimensions along which the operand runs, too
  if (rows.boxes == 0) own = rows.batch.size();
  while (own < rows.batch.size() && rows.batch[own].operand_stride != 0) rows.regions *= rows.batch[own++].size;
  rows.apart = own == rows.batch.size();
  rows.corner = c.components;
  // A box may lie half outside along a dimension of its window that an index moves it along.
  const auto moves = [&](const BoxCall::Component& k) { return k.window >= 0 && c.window[k.window].size != 1; };
  if (!held && std::ranges::any_of(c.components, moves)) return std::nullopt;
  size_t inner = c.window.size();
  for (; inner > 0; --inner) {
    const BoxCall::Along& w = c.window[inner - 1];
    if (w.size != 1 && (w.operand_stride != rows.run || w.box_stride != rows.run)) break;
    rows.run *= w.size;
  }
  for (size_t d = 0; d < inner; ++d) {
    rows.pieces *= c.window[d].size;
    if (c.window[d].size != 1) rows.outer.push_back(c.window[d]);
  }
  return rows;
}

std::optional<RowSort> SortOf(const BoxRows& rows) {
  constexpr int64_t kMost = UINT32_MAX - 1, kMostBuckets = 1024, kPerBucket = 64, kPerPart = 8192;
  RowSort sort;
  sort.places = rows.PlacesOf();
  sort.boxes = rows.boxes;
  if (sort.places.rows > kMost || sort.boxes > kMost) return std::nullopt;
  const int64_t most = std::clamp<int64_t>(sort.boxes / kPerBucket, 1, kMostBuckets);
  while ((sort.places.rows >> sort.shift) + 1 > most) ++sort.shift;
  sort.buckets = (sort.places.rows >> sort.shift) + 1;
  sort.parts = std::clamp<int64_t>(sort.boxes / kPerPart, 1, RowSort::kMostParts);
  return sort;
}

}  // namespace weft::cpu
