// Copies, gather and scatter on the launch list.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/backends/cpu/kernels/tiles/elements.h"
#include "src/backends/cpu/launch/box_walk.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

void CopyBytes(ThreadPool& pool, const char* from, char* to, int64_t bytes) {
  constexpr int64_t kPiece = 256 << 10;
  if (bytes <= kPiece) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  pool.ParallelFor((bytes + kPiece - 1) / kPiece, [&](int64_t i) {
    if (LaunchEnds()) return;
    std::memcpy(to + i * kPiece, from + i * kPiece, static_cast<size_t>(std::min(kPiece, bytes - i * kPiece)));
  });
}

// params: bytes. Buffers: from, to.
absl::Status RunCopy(const HostCall& call) {
  // From a place to itself: an argument that became the result.
  if (call.buffers[0] == call.buffers[1]) return absl::OkStatus();
  CopyBytes(call.pool, static_cast<const char*>(call.buffers[0]), static_cast<char*>(call.buffers[1]), call.params[0]);
  return absl::OkStatus();
}

// Where a run begins in bytes, held inside. params: its bytes, type of the indices, then of each index the bytes of a step and the
// largest one. Loops make such calls by the thousand: nothing is decoded.
int64_t RunAt(std::span<const int64_t> params, std::span<void* const> indices) {
  const auto type = static_cast<DType>(params[1]);
  int64_t at = 0;
  for (size_t k = 0; k < indices.size(); ++k) {
    at += params[2 + 2 * k] * std::clamp<int64_t>(ReadIndex(type, indices[k], 0), 0, params[3 + 2 * k]);
  }
  return at;
}
// Buffers: operand, indices…, run.
absl::Status RunReadRun(const HostCall& call) {
  const int64_t at = RunAt(call.params, call.buffers.subspan(1, call.buffers.size() - 2));
  CopyBytes(call.pool, static_cast<const char*>(call.buffers[0]) + at, static_cast<char*>(call.buffers.back()),
            call.params[0]);
  return absl::OkStatus();
}
// The same without a copy.
int64_t FindRun(const HostCall& call) { return RunAt(call.params, call.buffers.subspan(1, call.buffers.size() - 2)); }
// Buffers: run, indices…, result (which holds the operand already).
absl::Status RunWriteRun(const HostCall& call) {
  const int64_t at = RunAt(call.params, call.buffers.subspan(1, call.buffers.size() - 2));
  CopyBytes(call.pool, static_cast<const char*>(call.buffers[0]), static_cast<char*>(call.buffers.back()) + at,
            call.params[0]);
  return absl::OkStatus();
}

// The boxes from `begin` to `end`, held inside, in pieces: visit(element of the operand, element of the boxes, how many). The
// innermost window dimensions that are dense on both sides are one piece.
template <typename Visit>
void ForEachPiece(const BoxCall& c, std::span<void* const> tensors, int64_t begin, int64_t end, Visit visit) {
  int64_t run = 1, pieces = 1;
  size_t outer = c.window.size();
  while (outer > 0 && c.window[outer - 1].operand_stride == run && c.window[outer - 1].box_stride == run)
    run *= c.window[--outer].size;
  for (size_t d = 0; d < outer; ++d) pieces *= c.window[d].size;
  int64_t start[64];
  PieceLook look(static_cast<double>(run * BytesOf(c.dtype) + 100));
  for (int64_t n = begin; n < end; ++n) {
    const Corner corner = FindCorner(c, tensors, n, true, start);
    for (int64_t p = 0; p < pieces; ++p) {
      if (look.Ends()) return;
      int64_t operand = corner.operand, box = corner.box, rest = p;
      for (size_t d = outer; d-- > 0;) {
        const int64_t i = rest % c.window[d].size;
        rest /= c.window[d].size;
        operand += i * c.window[d].operand_stride;
        box += i * c.window[d].box_stride;
      }
      visit(operand, box, run);
    }
  }
}

// Buffers: operand, index tensors…, boxes.
absl::Status RunGather(const HostCall& call) {
  const BoxCall c = DecodeBoxes(call.params);
  const int64_t bytes = BytesOf(c.dtype);
  const char* operand = static_cast<const char*>(call.buffers[0]);
  char* boxes = static_cast<char*>(call.buffers.back());
  const auto tensors = call.buffers.subspan(1, call.buffers.size() - 2);
  int64_t window = 1;
  for (const auto& w : c.window) window *= w.size;
  if (window == 0) return absl::OkStatus();
  call.pool.ParallelRanges(CountOfBatch(c), [&](int64_t begin, int64_t end, int) {
    ForEachPiece(c, tensors, begin, end, [&](int64_t from, int64_t to, int64_t run) {
      const auto size = static_cast<size_t>(run * bytes);
      if (call.piece != nullptr)
        return (*call.piece)(from * bytes, {reinterpret_cast<std::byte*>(boxes + to * bytes), size});
      std::memcpy(boxes + to * bytes, operand + from * bytes, size);
    });
  });
  return absl::OkStatus();
}

template <typename T>
typename ElementRule<T>::Sum CombineElements(int64_t reducer, typename ElementRule<T>::Sum a,
                                             typename ElementRule<T>::Sum b) {
  using Sum = typename ElementRule<T>::Sum;
  switch (reducer) {
    case 0: return ElementRule<T>::Add(a, b);
    case 1: return ElementRule<T>::Multiply(a, b);
    case 2:
    case 3:
      if constexpr (std::is_floating_point_v<Sum>) {
        if (std::isnan(a)) return a;
        if (std::isnan(b)) return b;
      }
      return reducer == 2 ? std::max(a, b) : std::min(a, b);
    case 4:
    case 5:
      if constexpr (std::is_integral_v<Sum>) return static_cast<Sum>(reducer == 4 ? a & b : a | b);
      return b;
    default: return b;
  }
}

// Sums to which any number of terms may be added: what rounding took is taken from the next term (Kahan).
template <typename T>
[[gnu::always_inline]] inline void AddTerm(T term, T& sum, T& lost) {
  const T rest = term - lost, after = sum + rest, more = (after - sum) - rest;
  sum = after;
  lost = more - more == 0 ? more : T{0};  // nothing of infinities
}

template <typename T>
void AddCompensated(const BoxCall& c, std::span<void* const> tensors, const T* updates, void* space, T* result) {
  if (c.lost == BoxCall::kApart) {
    T* const lost = static_cast<T*>(space);
    ForEachRunInside(c, tensors, [&](int64_t to, int64_t, int64_t run) { std::fill_n(lost + to, run, T{0}); });
    ForEachRunInside(c, tensors, [&](int64_t to, int64_t from, int64_t run) {
      for (int64_t i = 0; i < run; ++i) AddTerm(updates[from + i], result[to + i], lost[to + i]);
    });
    return;
  }
  struct Both {
    T sum, lost;
  };
  Both* const sums = static_cast<Both*>(space);
  for (int64_t i = 0; i < c.elements; ++i) sums[i] = {result[i], T{0}};
  ForEachInside(c, tensors, [&](int64_t to, int64_t from) { AddTerm(updates[from], sums[to].sum, sums[to].lost); });
  for (int64_t i = 0; i < c.elements; ++i) result[i] = sums[i].sum;
}

// Buffers: updates, index tensors…, result (which holds the operand already), space for what sums lose. One thread:
// the order of updates to one place decides the bits.
absl::Status RunScatter(const HostCall& call) {
  const BoxCall c = DecodeBoxes(call.params);
  const auto tensors = call.buffers.subspan(1, call.buffers.size() - 2 - (c.lost != BoxCall::kForgotten));
  if (c.lost != BoxCall::kForgotten) {
    const auto add = [&]<typename T>(T) {
      AddCompensated(c, tensors, static_cast<const T*>(call.buffers[0]), call.buffers.back(),
                     static_cast<T*>(call.buffers[call.buffers.size() - 2]));
    };
    c.dtype == DType::kF64 ? add(double{}) : add(float{});
    return absl::OkStatus();
  }
  if (c.reducer == BoxCall::kSet && c.move_inside) {
    const int64_t bytes = BytesOf(c.dtype);
    const char* updates = static_cast<const char*>(call.buffers[0]);
    char* result = static_cast<char*>(call.buffers.back());
    ForEachPiece(c, tensors, 0, CountOfBatch(c), [&](int64_t to, int64_t from, int64_t run) {
      std::memcpy(result + to * bytes, updates + from * bytes, static_cast<size_t>(run * bytes));
    });
    return absl::OkStatus();
  }
  VisitElement(c.dtype, [&]<typename T>() {
    using Rule = ElementRule<T>;
    const T* updates = static_cast<const T*>(call.buffers[0]);
    T* result = static_cast<T*>(call.buffers.back());
    if (c.reducer == BoxCall::kSet) {
      return ForEachRunInside(
          c, tensors, [&](int64_t to, int64_t from, int64_t run) { std::copy_n(updates + from, run, result + to); });
    }
    ForEachInside(c, tensors, [&](int64_t to, int64_t from) {
      result[to] = Rule::Store(CombineElements<T>(c.reducer, Rule::Load(result[to]), Rule::Load(updates[from])));
    });
  });
  return absl::OkStatus();
}

constexpr HostKernel kKernels[] = {
    {"copy", RunCopy},          {"read_run", RunReadRun},
    {"write_run", RunWriteRun}, {.name = "gather", .run = RunGather, .reads_pieces = true},
    {"scatter", RunScatter},    {.name = "find_run", .run = nullptr, .find = FindRun},
};

}  // namespace

BoxCall DecodeBoxes(std::span<const int64_t> params) {
  const auto next = [&] {
    if (params.empty()) return int64_t{0};
    const int64_t first = params.front();
    params = params.subspan(1);
    return first;
  };
  // Records of as many numbers as they have fields.
  const auto list = [&](auto& out) {
    using Record = std::remove_reference_t<decltype(out[0])>;
    constexpr size_t kFields = sizeof(Record) / sizeof(int64_t);
    const auto wanted = static_cast<size_t>(std::clamp<int64_t>(next(), 0, 64));
    out.resize(std::min(wanted, params.size() / kFields));
    if (!out.empty()) std::memcpy(static_cast<void*>(out.data()), params.data(), out.size() * sizeof(Record));
    params = params.subspan(out.size() * kFields);
  };
  BoxCall c;
  c.dtype = static_cast<DType>(next());
  c.index_type = static_cast<DType>(next());
  c.reducer = next();
  c.move_inside = next() != 0;
  c.lost = next();
  c.elements = next();
  list(c.batch);
  list(c.window);
  list(c.components);
  return c;
}

std::vector<int64_t> EncodeBoxes(const BoxCall& c) {
  std::vector<int64_t> out = {
      static_cast<int64_t>(c.dtype), static_cast<int64_t>(c.index_type), c.reducer, c.move_inside, c.lost, c.elements};
  for (const auto* list : {&c.batch, &c.window}) {
    out.push_back(static_cast<int64_t>(list->size()));
    for (const BoxCall::Along& a : *list)
      out.insert(out.end(), {a.size, a.operand_stride, a.box_stride, a.index_stride});
  }
  out.push_back(static_cast<int64_t>(c.components.size()));
  for (const BoxCall::Component& k : c.components) {
    out.insert(out.end(), {k.operand_stride, k.limit, k.width, k.window, k.tensor, k.offset});
  }
  return out;
}

std::span<const HostKernel> MovementHostKernels() { return kKernels; }

}  // namespace weft::cpu
