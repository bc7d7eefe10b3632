// See sharding.h.
#include "src/lazy/sharding.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/backends/backend.h"

namespace weft::lazy {
namespace {

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

void CopyPartIn(std::span<const std::byte> value, const Dims& dims, const ir::Box& box, int64_t element,
                std::span<std::byte> part) {
  ForEachRun(dims, box, [&](int64_t at, int64_t from, int64_t count) {
    std::memcpy(part.data() + from * element, value.data() + at * element, static_cast<size_t>(count * element));
  });
}

}  // namespace weft::lazy
