// See sharding.h.
#include "src/lazy/value/sharding.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/backends/backend.h"
#include "src/runtime/alloc_hook.h"

namespace weft::lazy {
namespace {

// Read at once and copied on from there.
constexpr int64_t kPieceBytes = 16 << 20;

// Calls run(at, from, count) for each run of neighbours of the box: `count` elements that lie from element `at` of the value on, and
// from element `from` of the part on.
void ForEachRun(const Dims& dims, const ir::Box& box,
                absl::FunctionRef<void(int64_t at, int64_t from, int64_t count)> run) {
  // Dimensions at the end of which the box has all are one run with the dimension before them.
  size_t last = dims.size();
  int64_t length = 1;
  while (last > 0 && box.sizes[last - 1] == dims[last - 1]) length *= dims[--last];
  int64_t stride = length;
  if (last > 0) {
    --last;
    length *= box.sizes[last];
  }
  if (CountOf(box.sizes) == 0) return;
  std::vector<int64_t> strides(dims.size());
  for (size_t d = dims.size(), step = 1; d-- > 0; step *= static_cast<size_t>(dims[d]))
    strides[d] = static_cast<int64_t>(step);
  int64_t at = dims.empty() || last == dims.size() ? 0 : box.starts[last] * stride;
  for (size_t d = 0; d < last; ++d) at += box.starts[d] * strides[d];
  Dims index(last, 0);
  for (int64_t from = 0;; from += length) {
    run(at, from, length);
    size_t d = last;
    for (; d > 0; --d) {
      at += strides[d - 1];
      if (++index[d - 1] < box.sizes[d - 1]) break;
      at -= box.sizes[d - 1] * strides[d - 1];
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

}  // namespace

DeviceMesh::DeviceMesh(std::vector<Device*> devices, ir::Mesh axes, std::shared_ptr<Metrics> metrics)
    : devices_(std::move(devices)),
      axes_(std::move(axes)),
      holders_(devices_[0]->backend->shares_memory() ? 1 : devices_.size()),
      metrics_(std::move(metrics)),
      shardings_(1) {}

std::string DeviceMesh::name() const {
  const std::string devices =
      absl::StrJoin(devices_, ", ", [](std::string* out, const Device* device) { absl::StrAppend(out, device->name); });
  return alone() ? devices : absl::StrCat("the mesh ", ir::ToString(axes_), " of ", devices);
}

const ir::Sharding* DeviceMesh::Intern(const ir::Sharding& sharding) const {
  const auto found = std::ranges::find(shardings_, sharding);
  return found != shardings_.end() ? &*found : &shardings_.emplace_back(sharding);
}

Dims Placement::DimsOfPart(const Dims& dims) const { return split() ? BoxOf(dims, 0).sizes : dims; }

ByteRange RangeOfPart(const ir::Box& box, const Dims& dims, int64_t element, int64_t offset, int64_t size) {
  ByteRange range = {-1, -1};
  ForEachRun(dims, box, [&](int64_t at, int64_t from, int64_t count) {
    const int64_t first = std::max(at * element, offset), last = std::min((at + count) * element, offset + size);
    if (first >= last) return;
    if (range.begin < 0) range.begin = from * element + first - at * element;
    range.end = from * element + last - at * element;
  });
  return range.begin < 0 ? ByteRange() : range;
}

namespace {

// Returns the range from the first byte of the box to behind the last, in the bytes of the part that holds it.
ByteRange RangeOfPart(const ir::Box& box, const Dims& dims, int64_t element) {
  ByteRange range = {-1, -1};
  ForEachRun(dims, box, [&](int64_t at, int64_t, int64_t count) {
    if (range.begin < 0) range.begin = at * element;
    range.end = (at + count) * element;
  });
  return range;
}

}  // namespace

void CopyPartOut(std::span<const std::byte> bytes, ByteRange range, const ir::Box& box, const Dims& dims,
                 int64_t element, int64_t offset, std::span<std::byte> window) {
  const int64_t end = offset + static_cast<int64_t>(window.size());
  ForEachRun(dims, box, [&](int64_t at, int64_t from, int64_t count) {
    const int64_t first = std::max(at * element, offset), last = std::min((at + count) * element, end);
    if (first >= last) return;
    std::memcpy(window.data() + (first - offset), bytes.data() + from * element + first - at * element - range.begin,
                static_cast<size_t>(last - first));
  });
}

int64_t OffsetOfPart(const ir::Box& box, const Dims& dims, int64_t element) {
  int64_t offset = -1, runs = 0;
  ForEachRun(dims, box, [&](int64_t at, int64_t, int64_t) {
    if (runs++ == 0) offset = at * element;
  });
  return runs == 1 ? offset : -1;
}

absl::Status ReadParts(const Placement& placement, const Dims& dims, int64_t element, int64_t offset,
                       std::span<std::byte> window, ReadPart read) {
  std::vector<std::byte, LargeStdAllocator<std::byte>> part;
  for (size_t i = 0; i < placement.mesh().holders().size(); ++i) {
    if (!placement.IsFirst(i)) continue;
    const ir::Box box = placement.BoxOf(dims, i);
    const ByteRange range = RangeOfPart(box, dims, element, offset, static_cast<int64_t>(window.size()));
    if (range.begin == range.end) continue;
    const auto size = static_cast<size_t>(range.end - range.begin);
    if (const int64_t at = OffsetOfPart(box, dims, element); at >= 0) {
      // In one piece there, too: no copy in between.
      WEFT_RETURN_IF_ERROR(read(i, range.begin, window.subspan(static_cast<size_t>(at + range.begin - offset), size)));
      continue;
    }
    // A piece of the window after the other, so that little is held in between.
    for (int64_t at = 0; at < static_cast<int64_t>(window.size()); at += kPieceBytes) {
      const int64_t length = std::min(kPieceBytes, static_cast<int64_t>(window.size()) - at);
      const ByteRange here = RangeOfPart(box, dims, element, offset + at, length);
      if (here.begin == here.end) continue;
      part.resize(static_cast<size_t>(here.end - here.begin));
      WEFT_RETURN_IF_ERROR(read(i, here.begin, part));
      CopyPartOut(part, here, box, dims, element, offset + at,
                  window.subspan(static_cast<size_t>(at), static_cast<size_t>(length)));
    }
  }
  return absl::OkStatus();
}

ir::Box Common(const ir::Box& a, const ir::Box& b) {
  ir::Box common = a;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    common.starts[d] = std::max(a.starts[d], b.starts[d]);
    const int64_t end = std::min(a.starts[d] + a.sizes[d], b.starts[d] + b.sizes[d]);
    common.sizes[d] = std::max<int64_t>(0, end - common.starts[d]);
  }
  return common;
}

ir::Box Within(const ir::Box& inner, const ir::Box& outer) {
  ir::Box box = inner;
  for (size_t d = 0; d < box.starts.size(); ++d) box.starts[d] -= outer.starts[d];
  return box;
}

namespace {

// Copies `common` out of a part into the destination, both boxes of the value, in pieces.
absl::Status ReadCommon(const ir::Box& part, const ir::Box& common, const ir::Box& box, int64_t element,
                        std::span<std::byte> destination,
                        absl::FunctionRef<absl::Status(int64_t from, std::span<std::byte> to)> read) {
  if (CountOf(common.sizes) == 0) return absl::OkStatus();
  const ir::Box from = Within(common, part), to = Within(common, box);
  const int64_t bytes = CountOf(common.sizes) * element, piece = OffsetOfPart(from, part.sizes, element),
                target = OffsetOfPart(to, box.sizes, element);
  if (piece >= 0 && target >= 0) {
    return read(piece, destination.subspan(static_cast<size_t>(target), static_cast<size_t>(bytes)));
  }
  const ByteRange range = RangeOfPart(from, part.sizes, element);
  size_t d = 0;
  while (d < common.sizes.size() && common.sizes[d] == 1) ++d;
  if (range.end - range.begin > kPieceBytes && d < common.sizes.size()) {
    ir::Box first = common, second = common;
    first.sizes[d] = common.sizes[d] / 2;
    second.starts[d] += first.sizes[d];
    second.sizes[d] -= first.sizes[d];
    WEFT_RETURN_IF_ERROR(ReadCommon(part, first, box, element, destination, read));
    return ReadCommon(part, second, box, element, destination, read);
  }
  std::vector<std::byte, LargeStdAllocator<std::byte>> read_bytes(static_cast<size_t>(range.end - range.begin));
  WEFT_RETURN_IF_ERROR(read(range.begin, read_bytes));
  std::vector<std::byte> dense(static_cast<size_t>(bytes));
  ForEachRun(part.sizes, from, [&](int64_t at, int64_t dense_at, int64_t count) {
    std::memcpy(dense.data() + dense_at * element, read_bytes.data() + at * element - range.begin,
                static_cast<size_t>(count * element));
  });
  CopyPartOut(dense, {0, bytes}, to, box.sizes, element, 0, destination);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadBoxOfParts(const Placement& placement, const Dims& dims, int64_t element, const ir::Box& box,
                            std::span<std::byte> destination, ReadPart read) {
  const ir::Box whole = {Dims(dims.size(), 0), dims};
  for (size_t i = 0; i < placement.mesh().holders().size(); ++i) {
    if (!placement.IsFirst(i)) continue;
    const ir::Box part = placement.split() ? placement.BoxOf(dims, i) : whole;
    const auto its = [&](int64_t from, std::span<std::byte> to) { return read(i, from, to); };
    WEFT_RETURN_IF_ERROR(ReadCommon(part, Common(part, box), box, element, destination, its));
  }
  return absl::OkStatus();
}

void CopyPartIn(std::span<const std::byte> value, const Dims& dims, const ir::Box& box, int64_t element,
                std::span<std::byte> part) {
  ForEachRun(dims, box, [&](int64_t at, int64_t from, int64_t count) {
    std::memcpy(part.data() + from * element, value.data() + at * element, static_cast<size_t>(count * element));
  });
}

}  // namespace weft::lazy
