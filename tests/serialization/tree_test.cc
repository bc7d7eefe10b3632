// The in-memory tree: structure, paths, refusals.
#include "serialization/tree.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::StatusOr<Tree::NodeId>& result) { return std::string(result.status().message()); }

TEST(Tree, FindsByKeyIndexAndPathThroughAliases) {
  Tree tree;
  const auto model = tree.Add(0, "model", Tree::Dict()).value();
  const auto layers = tree.Add(model, "lay.ers", Tree::List()).value();
  tree.Append(layers, Tree::None()).value();
  const std::vector<int64_t> dims = {2, 3};
  const auto weight = tree.Append(layers, Tree::Tensor(DType::kF32, dims)).value();
  tree.Add(0, "copy", Tree::Alias(model)).value();
  EXPECT_EQ(tree.PathOf(weight), "model.lay\\.ers.1");
  EXPECT_EQ(tree.FindPath("model.lay\\.ers.1"), weight);
  EXPECT_EQ(tree.FindPath("copy.lay\\.ers.1"), weight);
  EXPECT_EQ(tree.FindPath("copy.lay\\.ers.2"), Tree::kNoNode);
  EXPECT_EQ(tree.FindPath("model.none"), Tree::kNoNode);
  EXPECT_EQ(tree.FindPath(""), Tree::root());
  EXPECT_EQ(tree.Find(model, "lay.ers"), layers);
  EXPECT_EQ(tree.Child(layers, 1), weight);
  EXPECT_EQ(tree.Child(layers, 2), Tree::kNoNode);
  EXPECT_EQ(tree.tensors()[0].node, weight);
}

TEST(Tree, PathsOfAWalkAreThoseOfEachNode) {
  Tree tree;
  const auto a = tree.Add(0, "a", Tree::List()).value();
  const auto b = tree.Append(a, Tree::Dict()).value();
  tree.Add(b, "", Tree::Int64(1)).value();
  tree.Add(b, ".", Tree::Int64(1)).value();
  const auto c = tree.Append(a, Tree::Tuple()).value();
  tree.Append(c, Tree::Int64(1)).value();
  tree.Add(0, "", Tree::List()).value();
  tree.Append(a, Tree::Int64(3)).value();
  int nodes = 0;
  tree.ForEachPath([&](Tree::NodeId id, const std::string& path) {
    EXPECT_EQ(path, tree.PathOf(id));
    ++nodes;
  });
  EXPECT_EQ(nodes, 9);
}

TEST(Tree, RefusesWhatItCouldNotStoreAndSaysWhy) {
  Tree tree;
  const auto list = tree.Add(0, "list", Tree::List()).value();
  const auto number = tree.Add(0, "n", Tree::Int64(1)).value();
  const auto alias = tree.Add(0, "alias", Tree::Alias(number)).value();
  EXPECT_EQ(Message(tree.Add(0, "list", Tree::None())), "tree node '' has the key 'list' already");
  EXPECT_EQ(Message(tree.Add(list, "key", Tree::None())), "tree node 'list' is a list and takes no keys; got 'key'");
  EXPECT_EQ(Message(tree.Add(number, "x", Tree::None())),
            "cannot add to tree node 'n': it is a int64, not a dict, list or tuple");
  EXPECT_EQ(Message(tree.Add(99, "x", Tree::None())), "tree node 99 does not exist; the tree has 4");
  EXPECT_THAT(Message(tree.Add(0, "\xff", Tree::None())), HasSubstr("is not valid UTF-8"));
  EXPECT_THAT(Message(tree.Add(0, std::string_view("a\0b", 3), Tree::None())), HasSubstr("is not valid UTF-8 without NUL"));
  EXPECT_THAT(Message(tree.Add(0, "t", Tree::Text("\xed\xa0\x80"))), HasSubstr("is not valid UTF-8"));
  EXPECT_THAT(Message(tree.Add(0, "x", Tree::Alias(alias))), HasSubstr("cannot stand for another alias"));
  EXPECT_THAT(Message(tree.Append(list, Tree::Alias(list))), HasSubstr("cannot stand for a container that holds it"));
  EXPECT_THAT(Message(tree.Add(0, std::string(5000, 'k'), Tree::None())), HasSubstr("a key of 5000 bytes"));
  EXPECT_THAT(Message(tree.Add(0, "b", Tree::Bytes(std::string(2 << 20, 'k')))), HasSubstr("use a tensor of u8"));
  const std::vector<int64_t> dims = {-1};
  EXPECT_THAT(Message(tree.Add(0, "d", Tree::Tensor(DType::kF32, dims))), HasSubstr("shape [-1]"));
  EXPECT_THAT(Message(tree.Add(0, "d", Tree::Tensor(static_cast<DType>(77), {}))), HasSubstr("unknown dtype 77"));
  EXPECT_EQ(tree.size(), 4u);
  Tree::NodeId at = 0;
  absl::StatusOr<Tree::NodeId> next = tree.Add(0, "deep", Tree::List());
  for (int i = 0; i < 2000 && next.ok(); ++i) at = *next, next = tree.Append(at, Tree::List());
  EXPECT_THAT(Message(next), HasSubstr("at most 1024 levels"));
}

}  // namespace
}  // namespace weft
