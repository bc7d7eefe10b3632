// Copies and gather on the launch list.
#include <algorithm>
#include <cstring>
#include <optional>

#include "src/backends/cpu/launch/box_rows.h"
#include "src/backends/cpu/launch/box_walk.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/launch/host_scatter.h"
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

template <int64_t kBytes>
void CopyEach(const char* from, const int64_t* at, int64_t count, int64_t bytes, char* to, int64_t step) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * step, from + at[i] * bytes, kBytes);
}

// Copies rows of `size` bytes, which begin at these elements of `bytes` bytes, to places `step` bytes apart.
void CopyRows(const char* from, const int64_t* at, int64_t count, int64_t bytes, int64_t size, char* to, int64_t step) {
  constexpr int64_t kLines = 8,
                    kLinesAhead = 128;  // lines that are asked for before they are read, of a row and in all
  switch (size) {
    case 1: return CopyEach<1>(from, at, count, bytes, to, step);
    case 2: return CopyEach<2>(from, at, count, bytes, to, step);
    case 4: return CopyEach<4>(from, at, count, bytes, to, step);
    case 8: return CopyEach<8>(from, at, count, bytes, to, step);
    case 16: return CopyEach<16>(from, at, count, bytes, to, step);
    default: break;
  }
  const int64_t ahead = kLinesAhead / std::min(kLines, size / 64 + 1);
  for (int64_t i = 0; i < count; ++i) {
    if (i + ahead < count) {
      const char* const later = from + at[i + ahead] * bytes;
      for (int64_t line = 0; line < std::min(size, kLines * 64); line += 64) __builtin_prefetch(later + line);
    }
    std::memcpy(to + i * step, from + at[i] * bytes, static_cast<size_t>(size));
  }
}

// Single elements that one number each places, which is held inside.
template <typename Index, int64_t kBytes>
void TakeElements(const BoxRows& rows, const char* from, const void* indices, int64_t count, char* to) {
  const BoxCall::Component& k = rows.corner[0];
  const Index* const at = static_cast<const Index*>(indices);
  const int64_t most = std::max<int64_t>(0, k.limit - k.width), step = rows.step * kBytes, next = rows.index_step;
  const int64_t along = rows.batch.empty() ? 0 : rows.batch.back().operand_stride * kBytes;
  const int64_t stride = k.operand_stride * kBytes;
  if (next == 1 && along == 0 && stride == kBytes && step == kBytes) {
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(to + i * kBytes, from + std::clamp<int64_t>(at[i], 0, most) * kBytes, kBytes);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = std::clamp<int64_t>(at[i * next], 0, most);
    std::memcpy(to + i * step, from + i * along + place * stride, kBytes);
  }
}
using Take = void (*)(const BoxRows& rows, const char* from, const void* indices, int64_t count, char* to);
// Returns null where boxes are no such elements.
Take TakeOf(const BoxRows& rows, DType index_type, int64_t bytes) {
  const bool wide = index_type == DType::kI64;
  if (rows.run != 1 || rows.corner.size() != 1 || (!wide && index_type != DType::kI32)) return nullptr;
  switch (bytes) {
    case 1: return wide ? TakeElements<int64_t, 1> : TakeElements<int32_t, 1>;
    case 2: return wide ? TakeElements<int64_t, 2> : TakeElements<int32_t, 2>;
    case 4: return wide ? TakeElements<int64_t, 4> : TakeElements<int32_t, 4>;
    case 8: return wide ? TakeElements<int64_t, 8> : TakeElements<int32_t, 8>;
    default: return nullptr;
  }
}

void GatherRows(const HostCall& call, const BoxCall& c, const BoxRows& rows) {
  constexpr int64_t kBlock = 1024, kInlineBytes = 32 << 10;
  const int64_t bytes = BytesOf(c.dtype), size = rows.run * bytes, total = rows.boxes * rows.pieces;
  const char* const operand = static_cast<const char*>(call.buffers[0]);
  char* const boxes = static_cast<char*>(call.buffers.back());
  const auto tensors = call.buffers.subspan(1, call.buffers.size() - 2);
  const Take take = TakeOf(rows, c.index_type, bytes);
  const int64_t length = rows.batch.empty() ? 1 : rows.batch.back().size;
  const auto copy = [&](int64_t begin, int64_t end, int) {
    int64_t at[kBlock];
    PieceLook look(static_cast<double>(kBlock * (size + 8)));
    for (int64_t next = begin; begin < end && !look.Ends(); begin = next) {
      const int64_t box = begin % rows.boxes;
      const BoxRows::Piece piece = rows.PieceAt(begin / rows.boxes);
      next = std::min({begin + kBlock, end, begin - box + rows.boxes});
      if (take != nullptr) {
        const BoxCall::Component& k = rows.corner[0];
        next = std::min(next, begin + length - box % length);
        const int64_t index = (box * rows.index_step + k.offset) * BytesOf(c.index_type);
        take(rows, operand + (piece.operand + rows.BaseOf(box)) * bytes,
             static_cast<const char*>(tensors[k.tensor]) + index, next - begin,
             boxes + (piece.box + box * rows.step) * bytes);
        continue;
      }
      rows.Find(tensors, c.index_type, box, next - begin, at);
      CopyRows(operand + piece.operand * bytes, at, next - begin, bytes, size,
               boxes + (piece.box + box * rows.step) * bytes, rows.step * bytes);
    }
  };
  if (total * size < kInlineBytes) return copy(0, total, 0);
  call.pool.ParallelRanges(total, copy);
}

// Buffers: operand, index tensors…, boxes.
absl::Status RunGather(const HostCall& call) {
  const BoxCall c = DecodeBoxes(call.params);
  if (call.piece == nullptr) {
    if (const std::optional<BoxRows> rows = RowsOf(c, true)) {
      if (rows->run > 0) GatherRows(call, c, *rows);
      return absl::OkStatus();
    }
  }
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

constexpr HostKernel kKernels[] = {
    {"copy", RunCopy},
    {"read_run", RunReadRun},
    {"write_run", RunWriteRun},
    {.name = "gather", .run = RunGather, .reads_pieces = true},
    {.name = "scatter", .run = RunScatter, .prepare = PrepareScatter},
    {"scatter_rows", RunScatterRows},
    {"step_rows", RunScatterRows},
    {"scatter_gathered", RunScatterGathered},
    {.name = "find_run", .run = nullptr, .find = FindRun},
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
