// States to save and to compare, for the checkpoint tests.
#pragma once

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "serialization/checkpoint_reader.h"
#include "serialization/checkpoint_schema.h"
#include "serialization/checkpoint_writer.h"

namespace weft::testing {

inline constexpr DType kAllDTypes[] = {
    DType::kBool, DType::kI4, DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kU4, DType::kU8, DType::kU16,
    DType::kU32, DType::kU64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kC64, DType::kC128,
    DType::kF8E3M4, DType::kF8E4M3, DType::kF8E4M3B11FNUZ, DType::kF8E4M3FN, DType::kF8E4M3FNUZ, DType::kF8E5M2,
    DType::kF8E5M2FNUZ, DType::kF8E8M0FNU,
};

// A tree with values: the source of a save.
struct State : TensorSource {
  Tree tree;
  std::vector<std::vector<std::byte>> values;  // by position in tree.tensors()

  Tree::NodeId Add(Tree::NodeId at, std::string_view key, const Tree::Value& value, uint32_t seed = 1) {
    const absl::StatusOr<Tree::NodeId> id = tree.Add(at, key, value);
    EXPECT_TRUE(id.ok()) << id.status();
    if (value.kind == Tree::Kind::kTensor) {
      std::vector<std::byte> bytes(*StoredBytes(value.dtype, value.dims));
      std::minstd_rand random(seed + static_cast<uint32_t>(values.size()));
      for (std::byte& b : bytes) b = static_cast<std::byte>(value.dtype == DType::kBool ? random() & 1 : random() >> 7);
      values.push_back(std::move(bytes));
    }
    return id.value_or(0);
  }
  Tree::NodeId AddTensor(Tree::NodeId at, std::string_view key, DType dtype, Dims dims) {
    return Add(at, key, Tree::Tensor(dtype, dims));
  }
  absl::Status Read(uint32_t tensor, uint64_t offset, std::span<std::byte> out) override {
    if (offset + out.size() > values[tensor].size()) return absl::InternalError("read past a tensor");
    if (!out.empty()) std::memcpy(out.data(), values[tensor].data() + offset, out.size());
    return absl::OkStatus();
  }
};

// The messages of a tree.
inline std::vector<Message> FramesOf(const Tree& tree) {
  absl::StatusOr<TreeEncoder> encoder = TreeEncoder::Of(tree);
  EXPECT_TRUE(encoder.ok()) << encoder.status();
  std::vector<Message> frames;
  for (Message message; encoder.ok() && encoder->Next(&message).value_or(false);) frames.push_back(std::move(message));
  return frames;
}

// About 6 KiB with one of everything.
inline State SmallState() {
  State s;
  const auto model = s.Add(0, "model", Tree::Dict());
  const auto weight = s.AddTensor(model, "weight.T\\x", DType::kF32, {5, 3});
  s.AddTensor(model, "größe", DType::kBF16, {40, 3});
  s.AddTensor(model, "scalar", DType::kF64, {});
  s.AddTensor(model, "empty", DType::kI32, {3, 0});
  s.AddTensor(model, "mask", DType::kBool, {300});
  s.Add(model, "tied", Tree::Alias(weight));
  const auto list = s.Add(0, "list", Tree::List());
  s.Add(list, "", Tree::Int64(-7));
  s.Add(list, "", Tree::Float64(0.1));
  s.Add(list, "", Tree::Bool(true));
  s.Add(list, "", Tree::None());
  s.AddTensor(list, "", DType::kI4, {7});
  const auto tuple = s.Add(list, "", Tree::Tuple());
  s.Add(tuple, "", Tree::Text("héllo"));
  s.Add(tuple, "", Tree::Bytes(std::string_view("\0\xff", 2)));
  s.Add(0, "again", Tree::Alias(model));
  s.Add(0, "", Tree::Dict());
  return s;
}

inline void ExpectSameState(CheckpointReader& reader, const State& state) {
  EXPECT_TRUE(reader.tree() == state.tree);
  ASSERT_EQ(reader.tensor_count(), state.values.size());
  std::vector<uint32_t> order;
  state.tree.ForEachPreorder([&](Tree::NodeId id) {
    if (state.tree.node(id).kind == Tree::Kind::kTensor) order.push_back(state.tree.node(id).tensor);
  });
  for (uint32_t i = 0; i < order.size(); ++i) {
    std::vector<std::byte> out(reader.tensor(i).bytes);
    const absl::Status status = reader.ReadTensor(i, out);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(out == state.values[order[i]]) << reader.tensor(i).name;
    const Tree::NodeId node = state.tree.tensors()[order[i]].node;
    ASSERT_EQ(state.tree.FindPath(reader.tensor(i).name), node);
    ASSERT_EQ(reader.Find(reader.tensor(i).name).value(), i);
  }
}

inline std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void WriteContents(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Everything a careful user does with a file: open, read all.
inline absl::Status OpenAndReadAll(const std::string& path, FileSystem* fs = nullptr, Verify verify = Verify::kAll) {
  absl::StatusOr<std::unique_ptr<CheckpointReader>> reader = CheckpointReader::Open(path, {.fs = fs, .verify = verify});
  if (!reader.ok()) return reader.status();
  if (const absl::Status all = (*reader)->LoadAll(); !all.ok()) return all;
  for (uint32_t i = 0; i < (*reader)->tensor_count(); ++i) {
    std::vector<std::byte> out((*reader)->tensor(i).bytes);
    absl::Status status = (*reader)->ReadTensor(i, out);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace weft::testing
