// How a plugin's xla.OpSharding is read: by the axes of the mesh, or not at all. The bytes are what XLA:CPU gave, or written by hand.
#include "src/backends/pjrt/shardings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::pjrt {
namespace {

using namespace std::string_view_literals;

// The sharding's text; "nothing" where there is none.
std::string Read(std::string_view bytes, std::string_view axes, Dims dims) {
  const absl::StatusOr<ir::Mesh> mesh = ir::ParseMesh(axes);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  const std::optional<ir::Sharding> read = ReadOpSharding(bytes, *mesh, ir::Type::Tensor(DType::kF32, dims));
  return read.has_value() ? ir::ToString(*mesh, *read, dims.size()) : "nothing";
}

TEST(PjrtShardings, TilesAreSaidByAxes) {
  EXPECT_EQ(Read("", "a=2,b=2", {8, 8}), "-,-") << "an empty message is REPLICATED";
  EXPECT_EQ(Read("\x08\x00"sv, "a=2,b=2", {8, 8}), "-,-");
  // {devices=[2,2]<=[4]}, its transpose, and with copies along the last tile dimension, said in two ways.
  EXPECT_EQ(Read("\x08\x03\x1a\x02\x02\x02\x4a\x01\x04\x52\x01\x00"sv, "a=2,b=2", {8, 8}), "a,b");
  EXPECT_EQ(Read("\x08\x03\x1a\x02\x02\x02\x4a\x02\x02\x02\x52\x02\x01\x00"sv, "a=2,b=2", {8, 8}), "b,a");
  EXPECT_EQ(Read("\x08\x03\x1a\x03\x02\x01\x02\x30\x01\x4a\x01\x04\x52\x01\x00"sv, "a=2,b=2", {8, 8}), "a,-");
  EXPECT_EQ(Read("\x08\x03\x1a\x03\x01\x02\x02\x42\x01\x00\x4a\x02\x02\x02\x52\x02\x01\x00"sv, "a=2,b=2", {8, 8}), "-,b");
  // Two axes along one dimension, either way round.
  EXPECT_EQ(Read("\x08\x03\x1a\x01\x04\x4a\x01\x04\x52\x01\x00"sv, "a=2,b=2", {8}), "a+b");
  EXPECT_EQ(Read("\x08\x03\x1a\x01\x04\x4a\x02\x02\x02\x52\x02\x01\x00"sv, "a=2,b=2", {8}), "b+a");
  EXPECT_EQ(Read("\x08\x03\x1a\x01\x04\x4a\x01\x04\x52\x01\x00"sv, "a=4", {8}), "a");
  EXPECT_EQ(Read("\x08\x03\x1a\x02\x02\x04\x4a\x01\x08\x52\x01\x00"sv, "a=2,one=1,b=2,c=2", {8, 8}), "a,b+c");
}

TEST(PjrtShardings, DevicesInAnyOrderAreTheSlotsOfTheMesh) {
  // devices=[4]0,2,1,3, packed and each by itself.
  EXPECT_EQ(Read("\x08\x03\x1a\x01\x04\x22\x04\x00\x02\x01\x03"sv, "a=2,b=2", {8}), "b+a");
  EXPECT_EQ(Read("\x08\x03\x18\x04\x20\x00\x20\x02\x20\x01\x20\x03"sv, "a=2,b=2", {8}), "b+a");
  EXPECT_EQ(Read("\x08\x03\x1a\x01\x04\x22\x04\x00\x02\x01\x03"sv, "a=4@0,2,1,3", {8}), "a");
  EXPECT_EQ(Read("\x08\x03\x1a\x01\x04\x4a\x01\x04\x52\x01\x00"sv, "a=4@0,2,1,3", {8}), "nothing") << "no axis counts so";
}

TEST(PjrtShardings, WhatAxesDoNotSayIsNothing) {
  const std::string_view half = "\x08\x03\x1a\x02\x02\x02\x30\x01\x4a\x01\x04\x52\x01\x00"sv;
  EXPECT_EQ(Read(half, "a=2,b=2", {8}), "a");
  EXPECT_EQ(Read(half, "a=4", {8}), "nothing") << "a part of an axis";
  EXPECT_EQ(Read(half, "a=2,b=2", {7}), "nothing") << "pieces do not come out even";
  EXPECT_EQ(Read(half, "a=2,b=3", {8}), "nothing") << "of another number of devices";
  EXPECT_EQ(Read("\x08\x01\x22\x01\x00"sv, "a=2,b=2", {8}), "nothing") << "MAXIMAL: on one device";
  EXPECT_EQ(Read("\x08\x04"sv, "a=2,b=2", {8}), "nothing") << "MANUAL";
  EXPECT_EQ(Read("\x08\x03\x1a\x02\x02\x02\x42\x01\x04\x4a\x01\x04\x52\x01\x00"sv, "a=2,b=2", {8}), "nothing") << "manual along the last";
  EXPECT_EQ(Read("\x08\x03\x1a\x01\x04\x4a\x01\x04\x52\x01\x00"sv, "a=2,b=2", {8, 8}), "nothing") << "of another rank";
  EXPECT_EQ(Read("\x08\x03\x1a\x01\x04\x22\x04\x00\x02\x02\x03"sv, "a=2,b=2", {8}), "nothing") << "a device twice";
  EXPECT_EQ(Read("\x08\x03\x1a\x01\x04\x22\x04\x00\x02\x04\x03"sv, "a=2,b=2", {8}), "nothing") << "a device that is not there";
  EXPECT_EQ(Read("\x08\x03\x1a\x01\x04\x4a\x01\x04\x52\x01\x01"sv, "a=2,b=2", {8}), "nothing") << "no order of dimensions";
}

TEST(PjrtShardings, BytesThatAreNoMessageAreNothing) {
  const std::string_view good = "\x08\x03\x1a\x02\x02\x02\x4a\x02\x02\x02\x52\x02\x01\x00"sv;
  for (size_t size = 1; size < good.size(); ++size) {
    const std::string read = Read(good.substr(0, size), "a=2,b=2", {8, 8});
    EXPECT_EQ(read, "nothing") << size;
  }
  const std::string_view huge = "\x08\x03\x1a\x14\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x02\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x02\x4a\x01\x04\x52\x01\x00"sv;
  EXPECT_EQ(Read(huge, "a=2,b=2", {8, 8}), "nothing");
  EXPECT_EQ(Read("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv, "a=2,b=2", {8, 8}), "nothing");
  EXPECT_EQ(Read("\x1a\xff\xff\xff\xff\x0f\x02"sv, "a=2,b=2", {8, 8}), "nothing");
  EXPECT_EQ(Read("\x0d\x00\x00\x00\x00"sv, "a=2,b=2", {8, 8}), "nothing") << "no field of it is of 32 bits";
}

}  // namespace
}  // namespace weft::pjrt
