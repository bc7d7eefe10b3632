// Parts of values: out of a value and back, against indices written out one by one.
#include "src/lazy/value/sharding.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "src/backends/reference/reference_backend.h"

namespace weft::lazy {
namespace {

// The element of a part of these dims at a place of the value; -1: it is in another part.
int64_t PlaceIn(const ir::Box& box, const Dims& dims, int64_t at) {
  int64_t place = 0, stride = 1;
  for (size_t d = dims.size(); d-- > 0; at /= dims[d]) {
    const int64_t index = at % dims[d] - box.starts[d];
    if (index < 0 || index >= box.sizes[d]) return -1;
    place += index * stride;
    stride *= box.sizes[d];
  }
  return place;
}

TEST(Parts, OutAndBackForRandomShapesAndWindows) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 2000; ++round) {
    ir::Mesh mesh;
    for (int64_t i = 0, n = 1 + draw(3); i < n; ++i) mesh.axes.push_back({std::string(1, static_cast<char>('a' + i)), 1 + draw(3)});
    Dims dims;
    ir::Sharding sharding;
    std::vector<uint32_t> axes;
    for (uint32_t i = 0; i < mesh.axes.size(); ++i) axes.push_back(i);
    std::shuffle(axes.begin(), axes.end(), random);
    for (int64_t d = 0, rank = draw(4); d < rank; ++d) {
      ir::Sharding::Dimension& cut = sharding.dimensions.emplace_back();
      int64_t pieces = 1;
      while (!axes.empty() && draw(2) == 0) {
        cut.axes.push_back(axes.back());
        pieces *= mesh.axes[axes.back()].size;
        axes.pop_back();
      }
      dims.push_back(pieces * draw(4));
    }
    const int64_t count = CountOf(dims);
    std::vector<int16_t> value(static_cast<size_t>(count)), back(value.size(), -1);
    for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<int16_t>(i);
    const int64_t first = draw(count + 1), last = first + draw(count - first + 1);
    const std::span<std::byte> window = std::as_writable_bytes(std::span(back)).subspan(static_cast<size_t>(2 * first), static_cast<size_t>(2 * (last - first)));
    for (int64_t place = 0; place < mesh.size(); ++place) {
      const ir::Box box = ir::BoxOf(mesh, sharding, dims, place);
      std::vector<int16_t> part(static_cast<size_t>(CountOf(box.sizes)), -2), wanted(part.size(), -3);
      CopyPartIn(std::as_bytes(std::span(value)), dims, box, 2, std::as_writable_bytes(std::span(part)));
      for (int64_t i = 0; i < count; ++i) {
        if (const int64_t in = PlaceIn(box, dims, i); in >= 0) wanted[static_cast<size_t>(in)] = value[static_cast<size_t>(i)];
      }
      ASSERT_EQ(part, wanted) << DimsToString(dims) << " " << ir::ToString(mesh, sharding, dims.size());
      if (!ir::IsFirstCopy(mesh, sharding, place)) continue;
      const ByteRange range = RangeOfPart(box, dims, 2, 2 * first, 2 * (last - first));
      const auto bytes = std::as_bytes(std::span(part)).subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.end - range.begin));
      CopyPartOut(bytes, range, box, dims, 2, 2 * first, window);
    }
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(back[static_cast<size_t>(i)], i >= first && i < last ? value[static_cast<size_t>(i)] : -1);
    }
  }
}

TEST(Parts, AMeshOfDevicesThatShareAMemoryHasOneHolder) {
  const auto backend = NewReferenceBackend(nullptr, {}, 4);
  const std::span<Device* const> all = backend->devices();
  const DeviceMesh mesh({all.begin(), all.end()}, *ir::ParseMesh("a=2,b=2"));
  EXPECT_EQ(mesh.devices().size(), 4u);
  EXPECT_EQ(mesh.holders().size(), 1u);
  EXPECT_EQ(mesh.name(), "the mesh a=2,b=2 of reference:0, reference:1, reference:2, reference:3");
  const ir::Sharding cut = *ir::ParseSharding("a,-", mesh.axes());
  EXPECT_EQ(mesh.Intern(cut), mesh.Intern(cut));
  EXPECT_NE(mesh.Intern(cut), mesh.whole());
  EXPECT_FALSE(Placement::Of(mesh, cut).split());
}

}  // namespace
}  // namespace weft::lazy
