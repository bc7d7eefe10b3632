// Kernels of the launch list that call generated code on single elements: sort by a comparator, scatter by a function. And
// sort by keys, which generated code has made of what a comparator compares.
#include <algorithm>
#include <array>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "src/backends/cpu/launch/body_calls.h"
#include "src/backends/cpu/launch/box_walk.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/launch/merge_sort.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kLongRow = 1 << 16;  // elements of a row that several threads sort
constexpr int64_t kShortRow = 512;     // below this, merging beats counting digits

using Pointers = absl::InlinedVector<void*, 24>;

std::vector<int64_t> DecodeBytes(std::span<const int64_t> params, size_t at) {
  std::vector<int64_t> bytes;
  for (; at < params.size(); ++at) bytes.push_back(std::clamp<int64_t>(params[at], 1, 16));
  return bytes;
}

SortCall DecodeSort(std::span<const int64_t> params) {
  SortCall c;
  if (params.size() < 5) return c;
  c.outer = params[0];
  c.length = params[1];
  c.inner = params[2];
  c.key_bytes = params[3];
  c.captures = params[4];
  c.bytes = DecodeBytes(params, 5);
  return c;
}

int64_t BaseOf(const SortCall& c, int64_t row) { return row / c.inner * c.inner * c.length + row % c.inner; }

template <typename T, typename Index>
void TakeAs(const void* from, void* to, int64_t n, int64_t stride, Index index) {
  const T* source = static_cast<const T*>(from);
  T* target = static_cast<T*>(to);
  for (int64_t k = 0; k < n; ++k) target[k * stride] = source[index(k) * stride];
}

// to[k] = from[index(k)], elements `stride` apart.
template <typename Index>
void Take(int64_t bytes, const char* from, char* to, int64_t n, int64_t stride, Index index) {
  switch (bytes) {
    case 1: return TakeAs<uint8_t>(from, to, n, stride, index);
    case 2: return TakeAs<uint16_t>(from, to, n, stride, index);
    case 4: return TakeAs<uint32_t>(from, to, n, stride, index);
    case 8: return TakeAs<uint64_t>(from, to, n, stride, index);
    default:
      for (int64_t k = 0; k < n; ++k) {
        std::memcpy(to + k * stride * bytes, from + index(k) * stride * bytes, static_cast<size_t>(bytes));
      }
  }
}

// How rows are sorted: `fill(row, items, first, count)` writes items, `sort(row, items, other, count)` says where they lie then,
// `less_of(row)` merges pieces that several threads have sorted, and `index(item)` is an item's element.
template <typename Fill, typename Sort, typename LessOf, typename Index>
struct Sorting {
  Fill fill;
  Sort sort;
  LessOf less_of;
  Index index;
};

// Sorts every row's items and takes the tensors' elements by them. `tensors`: all inputs, then all results.
template <typename Item, typename How>
void SortRows(const SortCall& c, ThreadPool& pool, std::span<void* const> tensors, Item* space, const How& how) {
  const auto& [fill, sort, less_of, index] = how;
  const size_t n = c.bytes.size();
  const auto take = [&](int64_t row, const Item* sorted, int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kSortedAtOnce) {
      if (LaunchEnds()) return;  // perhaps before all was sorted
      for (size_t t = 0; t < n; ++t) {
        const int64_t base = BaseOf(c, row) * c.bytes[t];
        Take(c.bytes[t], static_cast<const char*>(tensors[t]) + base,
             static_cast<char*>(tensors[n + t]) + base + first * c.inner * c.bytes[t],
             std::min(end - first, kSortedAtOnce), c.inner,
             [&](int64_t k) { return static_cast<int64_t>(index(sorted[first + k])); });
      }
    }
  };
  // False if the launch ends: then items may be anything.
  const auto filled = [&](int64_t row, Item* items, int64_t begin, int64_t size) {
    if (size <= kSortedAtOnce) return fill(row, items + begin, begin, size), true;
    InPieces(begin, begin + size, [&](int64_t first, int64_t last) { fill(row, items + first, first, last - first); });
    return !LaunchEnds();
  };
  if (c.length < kLongRow || c.rows() >= pool.threads()) {
    pool.ParallelRanges(c.rows(), [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        Item* items = space + row * 2 * c.length;
        if (!filled(row, items, 0, c.length)) return;
        take(row, sort(row, items, items + c.length, c.length), 0, c.length);
      }
    });
    return;
  }
  const int64_t piece = std::max(kLongRow / 4, (c.length + pool.threads() - 1) / pool.threads());
  const int64_t pieces = (c.length + piece - 1) / piece;
  for (int64_t row = 0; row < c.rows(); ++row) {
    Item* items = space + row * 2 * c.length;
    Item* other = items + c.length;
    pool.ParallelFor(pieces, [&](int64_t p) {
      const int64_t begin = p * piece, size = std::min(piece, c.length - begin);
      if (!filled(row, items, begin, size)) return;
      const Item* sorted = sort(row, items + begin, other + begin, size);
      if (LaunchEnds()) return;
      if (sorted != items + begin) CopyItems(sorted, items + begin, 0, size);
    });
    for (int64_t width = piece; width < c.length; width *= 2) {
      if (LaunchEnds()) return;
      pool.ParallelFor((c.length + 2 * width - 1) / (2 * width), [&](int64_t p) {
        const int64_t begin = p * 2 * width;
        MergeRuns(items, other, begin, std::min(begin + width, c.length), std::min(begin + 2 * width, c.length),
                  less_of(row));
      });
      std::swap(items, other);
    }
    pool.ParallelRanges(c.length, [&](int64_t begin, int64_t end, int) { take(row, items, begin, end); });
  }
}

template <typename T>
void SortByKeys(const SortCall& c, const HostCall& call) {
  using Item = Keyed<T>;
  const char* keys = static_cast<const char*>(call.buffers[0]);
  const auto fill = [&](int64_t row, Item* items, int64_t begin, int64_t size) {
    const char* from = keys + (BaseOf(c, row) + begin * c.inner) * c.key_bytes;
    for (int64_t k = 0; k < size; ++k, from += c.inner * c.key_bytes) {
      uint64_t key = 0;  // the machine is little-endian
      std::memcpy(&key, from, static_cast<size_t>(c.key_bytes));
      items[k] = {static_cast<T>(key), static_cast<T>(begin + k)};
    }
  };
  const auto less = [](const Item& a, const Item& b) { return a.key < b.key; };
  const auto sort = [&](int64_t, Item* items, Item* other, int64_t size) {
    return size < kShortRow ? MergeSort(items, other, size, less)
                            : RadixSort(items, other, size, static_cast<int>(c.key_bytes));
  };
  SortRows(c, call.pool, call.buffers.subspan(1, 2 * c.bytes.size()), static_cast<Item*>(call.buffers.back()),
           Sorting{fill, sort, [&](int64_t) { return less; }, [](const Item& item) { return item.index; }});
}

// Buffers: keys, tensors, results, space.
absl::Status RunSortKeys(const HostCall& call) {
  const SortCall c = DecodeSort(call.params);
  if (c.narrow()) {
    SortByKeys<uint32_t>(c, call);
  } else {
    SortByKeys<uint64_t>(c, call);
  }
  return absl::OkStatus();
}

// The comparator on elements of one row. It has pointers of its own, so every thread has a copy.
class Comparer {
 public:
  Comparer(const SortCall& c, const HostCall& call) : c_(c), code_(*call.epilogue), tensors_(call.buffers.data()) {
    const size_t n = c.bytes.size();
    pointers_.resize(2 * n);
    const auto captures = call.buffers.subspan(2 * n, static_cast<size_t>(c.captures));
    pointers_.insert(pointers_.end(), captures.begin(), captures.end());
    pointers_.push_back(nullptr);
  }

  Comparer OfRow(int64_t row) const {
    Comparer copy = *this;
    copy.base_ = BaseOf(c_, row);
    return copy;
  }

  template <typename T>
  bool operator()(T p, T q) {
    for (size_t t = 0; t < c_.bytes.size(); ++t) {
      char* tensor = static_cast<char*>(tensors_[t]);
      pointers_[2 * t] = tensor + (base_ + static_cast<int64_t>(p) * c_.inner) * c_.bytes[t];
      pointers_[2 * t + 1] = tensor + (base_ + static_cast<int64_t>(q) * c_.inner) * c_.bytes[t];
    }
    uint8_t before = 0;
    pointers_.back() = &before;
    code_.fn(pointers_.data(), code_.params.data(), 0, 1, nullptr);
    return before != 0;
  }

 private:
  const SortCall& c_;
  const BlockLoop& code_;
  void* const* tensors_;
  int64_t base_ = 0;
  Pointers pointers_;
};

template <typename T>
void SortByComparing(const SortCall& c, const HostCall& call) {
  const Comparer prototype(c, call);
  const auto fill = [](int64_t, T* items, int64_t begin, int64_t size) {
    for (int64_t k = 0; k < size; ++k) items[k] = static_cast<T>(begin + k);
  };
  const auto less_of = [&](int64_t row) { return prototype.OfRow(row); };
  const auto sort = [&](int64_t row, T* items, T* other, int64_t size) {
    return MergeSort(items, other, size, less_of(row));
  };
  SortRows(c, call.pool, call.buffers.first(2 * c.bytes.size()), static_cast<T*>(call.buffers.back()),
           Sorting{fill, sort, less_of, [](T item) { return item; }});
}

// Buffers: tensors, results, captures, space.
absl::Status RunSortBy(const HostCall& call) {
  const SortCall c = DecodeSort(call.params);
  if (c.narrow()) {
    SortByComparing<uint32_t>(c, call);
  } else {
    SortByComparing<uint64_t>(c, call);
  }
  return absl::OkStatus();
}

// Buffers: updates, indices, results (which hold the operands already), captures. One thread: updates to one place come in
// their order.
absl::Status RunScatterBy(const HostCall& call) {
  const auto count = static_cast<size_t>(std::clamp<int64_t>(call.params[0], 0, 64));
  const auto captures = static_cast<size_t>(std::clamp<int64_t>(call.params[1], 0, 64));
  const std::vector<int64_t> bytes = DecodeBytes(call.params.first(2 + count), 2);
  const BoxCall boxes = DecodeBoxes(call.params.subspan(2 + count));
  const auto updates = call.buffers.first(count), results = call.buffers.subspan(count + 1, count);
  Pointers pointers(2 * count);
  for (const void* capture : call.buffers.subspan(2 * count + 1, captures)) {
    pointers.push_back(const_cast<void*>(capture));
  }
  absl::InlinedVector<std::array<char, 16>, 8> made(count);
  for (auto& value : made) pointers.push_back(value.data());
  ForEachInside(boxes, call.buffers.subspan(count, 1), [&](int64_t to, int64_t from) {
    for (size_t t = 0; t < count; ++t) {
      pointers[t] = static_cast<char*>(results[t]) + to * bytes[t];
      pointers[count + t] = static_cast<char*>(updates[t]) + from * bytes[t];
    }
    call.epilogue->fn(pointers.data(), call.epilogue->params.data(), 0, 1, nullptr);
    for (size_t t = 0; t < count; ++t) std::memcpy(pointers[t], made[t].data(), static_cast<size_t>(bytes[t]));
  });
  return absl::OkStatus();
}

constexpr HostKernel kKernels[] = {
    {"sort_keys", RunSortKeys},
    {"sort_by", RunSortBy},
    {"scatter_by", RunScatterBy},
};

}  // namespace

std::vector<int64_t> EncodeSort(const SortCall& c) {
  std::vector<int64_t> out = {c.outer, c.length, c.inner, c.key_bytes, c.captures};
  out.insert(out.end(), c.bytes.begin(), c.bytes.end());
  return out;
}

std::vector<int64_t> EncodeScatter(const ScatterCall& c) {
  std::vector<int64_t> out = {static_cast<int64_t>(c.bytes.size()), c.captures};
  out.insert(out.end(), c.bytes.begin(), c.bytes.end());
  const std::vector<int64_t> boxes = EncodeBoxes(c.boxes);
  out.insert(out.end(), boxes.begin(), boxes.end());
  return out;
}

std::span<const HostKernel> BodyHostKernels() { return kKernels; }

}  // namespace weft::cpu
