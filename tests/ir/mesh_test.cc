// Meshes and shardings: their texts, what is refused, and their canonical bytes, which say all of them and nothing else.
#include "src/ir/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "src/ir/code.h"
#include "src/ir/code_read.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "tests/ir/support_ops.h"

namespace weft::ir {
namespace {

using ::testing::HasSubstr;
using Random = std::mt19937;

int64_t Below(Random& random, int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random); }

Mesh RandomMesh(Random& random) {
  Mesh mesh;
  const int64_t axes = 1 + Below(random, 4);
  for (int64_t i = 0; i < axes; ++i) mesh.axes.push_back({std::string(1, static_cast<char>('a' + i)), 1 + Below(random, 4)});
  if (Below(random, 2) == 0) return mesh;
  mesh.slots.resize(static_cast<size_t>(mesh.size()));
  std::iota(mesh.slots.begin(), mesh.slots.end(), 0);
  std::ranges::shuffle(mesh.slots, random);
  return mesh;
}

// Each axis goes to one of the dimensions or to none.
Sharding RandomSharding(Random& random, const Mesh& mesh, size_t rank) {
  Sharding sharding;
  sharding.dimensions.resize(rank);
  for (uint32_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const int64_t to = Below(random, static_cast<int64_t>(rank) + 2);
    if (to < static_cast<int64_t>(rank)) sharding.dimensions[static_cast<size_t>(to)].axes.push_back(axis);
  }
  for (Sharding::Dimension& dimension : sharding.dimensions) dimension.open = Below(random, 5) == 0;
  return sharding;
}

Participants RandomParticipants(Random& random) {
  Participants who;
  if (Below(random, 4) == 0) {
    who.replicas = static_cast<uint32_t>(1 + Below(random, 300));
    who.partitions = static_cast<uint32_t>(1 + Below(random, 3));
    return who;
  }
  who.mesh = RandomMesh(random);
  who.partitions = static_cast<uint32_t>(who.mesh.size());
  for (std::vector<Sharding>* list : {&who.parameters, &who.results}) {
    list->resize(static_cast<size_t>(Below(random, 4)));
    for (Sharding& sharding : *list) sharding = RandomSharding(random, who.mesh, static_cast<size_t>(Below(random, 4)));
  }
  return who;
}

std::string CodeOf(const Participants& who) {
  std::string code;
  CodeWriter(&code).Participants(who);
  return code;
}

TEST(Mesh, CanonicalBytesComeBackAndTellAllApart) {
  Random random(40);
  std::map<std::string, Participants> seen;
  for (int i = 0; i < 20'000; ++i) {
    const Participants who = RandomParticipants(random);
    const std::string code = CodeOf(who);
    CodeReader reader(code, FindTestOp);
    const Participants read = reader.Participants();
    ASSERT_TRUE(reader.done());
    ASSERT_TRUE(read == who) << ToString(who.mesh);
    ASSERT_EQ(CodeOf(read), code);
    const auto [known, added] = seen.try_emplace(code, who);
    // Equal bytes, equal meaning.
    ASSERT_TRUE(known->second == who);
    // Bytes that are cut off are no participants.
    CodeReader shorter(std::string_view(code).substr(0, code.size() - 1), FindTestOp);
    (void)shorter.Participants();
    ASSERT_FALSE(shorter.ok());
  }
  // And different bytes, different meaning.
  EXPECT_GT(seen.size(), 5'000u);
  std::vector<const Participants*> some;
  for (const auto& [code, who] : seen) {
    if (some.size() < 400) some.push_back(&who);
  }
  for (size_t i = 0; i < some.size(); ++i) {
    for (size_t k = 0; k < i; ++k) ASSERT_FALSE(*some[i] == *some[k]);
  }
}

TEST(Mesh, BytesAreOfWhatIsMeant) {
  Participants given, shorter;
  given.mesh = {.axes = {{"data", 2}, {"model", 2}}, .slots = {0, 1, 2, 3}};
  given.partitions = 4;
  given.parameters.resize(2);
  given.results = {Sharding{.dimensions = {{.axes = {0}}, {}, {}}}};
  shorter.mesh = {.axes = {{"data", 2}, {"model", 2}}, .slots = {}};
  shorter.partitions = 4;
  shorter.results = {Sharding{.dimensions = {{.axes = {0}}}}};
  EXPECT_TRUE(given == shorter);
  EXPECT_EQ(CodeOf(given), CodeOf(shorter));
  EXPECT_TRUE(Participants().usual());
  EXPECT_FALSE(given.usual());
  given.mesh.slots = {0, 1, 3, 2};
  EXPECT_NE(CodeOf(given), CodeOf(shorter));
}

TEST(Mesh, TextsComeBack) {
  Random random(41);
  for (int i = 0; i < 5'000; ++i) {
    const Mesh mesh = RandomMesh(random);
    const absl::StatusOr<Mesh> read = ParseMesh(ToString(mesh));
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_TRUE(*read == mesh) << ToString(mesh);
    const auto rank = static_cast<size_t>(Below(random, 4));
    const Sharding sharding = RandomSharding(random, mesh, rank);
    const std::string text = ToString(mesh, sharding, rank);
    const absl::StatusOr<Sharding> back = ParseSharding(text, mesh);
    ASSERT_TRUE(back.ok()) << text << ": " << back.status();
    ASSERT_TRUE(*back == sharding) << text;
  }
  const Mesh mesh{.axes = {{"data", 2}, {"model", 4}}, .slots = {}};
  EXPECT_EQ(ToString(mesh), "data=2,model=4");
  EXPECT_EQ(ToString(mesh, {.dimensions = {{.axes = {0, 1}}, {}}}, 2), "data+model,-");
  EXPECT_EQ(ToString(mesh, {.dimensions = {{}, {.axes = {1}, .open = true}}}, 3), "-,model?,-");
  EXPECT_EQ(ToString(mesh, {}, 0), "");
}

TEST(Mesh, WhatIsNoneIsRefused) {
  const auto error = [](std::string_view text) { return std::string(ParseMesh(text).status().message()); };
  EXPECT_THAT(error(""), HasSubstr("the mesh '' has an axis ''; it must be a name, '=' and a size"));
  EXPECT_THAT(error("data"), HasSubstr("has an axis 'data'; it must be a name, '=' and a size"));
  EXPECT_THAT(error("data=x"), HasSubstr("has an axis 'data=x'"));
  EXPECT_THAT(error("=2"), HasSubstr("axis 0 of the mesh is called ''; a name is of letters, digits, '_' and '.'"));
  EXPECT_THAT(error("a b=2"), HasSubstr("axis 0 of the mesh is called 'a b'"));
  EXPECT_THAT(error("data=0"), HasSubstr("the mesh's axis data has size 0"));
  EXPECT_THAT(error("data=-1"), HasSubstr("the mesh's axis data has size -1"));
  EXPECT_THAT(error("data=2,data=2"), HasSubstr("two axes of the mesh are called data"));
  EXPECT_THAT(error("a=4096,b=4096,c=2"), HasSubstr("has more than 16777216 devices"));
  EXPECT_THAT(error("a=9223372036854775807,b=9223372036854775807"), HasSubstr("has more than 16777216 devices"));
  EXPECT_THAT(error("data=2@0"), HasSubstr("has 1 slots for 2 devices"));
  EXPECT_THAT(error("data=2@0,2"), HasSubstr("has slot 2 of 2"));
  EXPECT_THAT(error("data=2@1,1"), HasSubstr("has slot 1 twice"));
  EXPECT_THAT(error("data=2@"), HasSubstr("has a slot ''"));
}

TEST(Mesh, WhatDoesNotFitAMeshIsRefused) {
  const Mesh mesh{.axes = {{"data", 2}, {"model", 4}}, .slots = {}};
  EXPECT_THAT(std::string(ParseSharding("data,rows", mesh).status().message()),
              HasSubstr("the sharding 'data,rows' names the axis 'rows'; the mesh has data, model"));
  EXPECT_THAT(std::string(ParseSharding("data", Mesh()).status().message()), HasSubstr("names the axis 'data'; the mesh has none"));
  const auto error = [&](const Sharding& sharding, Dims dims) {
    return std::string(Check(mesh, sharding, Type::Tensor(DType::kF32, std::move(dims)), "parameter 2").message());
  };
  EXPECT_EQ(error({.dimensions = {{.axes = {0, 1}}, {}}}, {16, 3}), "");
  EXPECT_EQ(error({.dimensions = {{}, {}, {}}}, {16}), "");  // nothing is cut
  EXPECT_THAT(error({.dimensions = {{.axes = {0}}, {.axes = {0}}}}, {2, 2}),
              HasSubstr("the sharding 'data,data' of parameter 2, tensor<2x2xf32>, uses the axis data twice"));
  EXPECT_THAT(error({.dimensions = {{.axes = {1, 1}}}}, {16}), HasSubstr("uses the axis model twice"));
  EXPECT_THAT(error({.dimensions = {{.axes = {2}}}}, {16}), HasSubstr("names axis number 2 of a mesh that has 2"));
  EXPECT_THAT(error({.dimensions = {{.axes = {0, 1}}}}, {12}),
              HasSubstr("cuts dimension 0 of size 12 into 8 pieces, which do not come out even"));
  EXPECT_THAT(error({.dimensions = {{.axes = {0}}, {.axes = {1}}}}, {2}), HasSubstr("is for 2 dimensions; there are 1"));
  EXPECT_THAT(std::string(Check(mesh, {.dimensions = {{.axes = {0}}}}, Type::Token(), "result 0").message()),
              HasSubstr("is for 1 dimensions; there are 0"));
}

// --- Of a module ---------------------------------------------------------------------------------------------------------

std::string Verified(std::string_view head, std::string_view function = "") {
  constexpr std::string_view kAdd =
      "func @main(%0: tensor<4x6xf32> {donated_to = 0}, %1: tensor<4x6xf32>) -> (tensor<4x6xf32>) { %2 = add(%0, %1) : tensor<4x6xf32> return %2 }";
  auto module = Parse(absl::StrCat("module {", head, "}\n", function.empty() ? kAdd : function), FindTestOp);
  if (!module.ok()) return std::string(module.status().message());
  const absl::Status status = Verify(*module);
  if (!status.ok()) return std::string(status.message());
  // What is printed is read again as it was.
  const std::string text = Print(*module);
  auto again = Parse(text, FindTestOp);
  EXPECT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->participants == module->participants) << text;
  EXPECT_EQ(Print(*again), text);
  return "ok";
}

TEST(Mesh, AModuleSaysHowItsValuesLie) {
  EXPECT_EQ(Verified("partitions = 4"), "ok");
  EXPECT_EQ(Verified("replicas = 2, partitions = 2"), "ok");
  EXPECT_EQ(Verified("partitions = 4, mesh = \"data=2,model=2@0,2,1,3\""), "ok");
  EXPECT_EQ(Verified("partitions = 4, mesh = \"data=2,model=2\", parameters = \"data,model; -\", results = \"data,model\""), "ok");
}

TEST(Mesh, AModuleThatCannotBeIsRefused) {
  EXPECT_THAT(Verified("partitions = 0"), HasSubstr("the module has 1 replicas and 0 partitions"));
  EXPECT_THAT(Verified("partitions = 2, mesh = \"data=4\""),
              HasSubstr("the module's mesh data=4 is for one replica of 4 partitions; the module has 1 of 2"));
  EXPECT_THAT(Verified("replicas = 4, mesh = \"data=4\""), HasSubstr("the module has 4 of 1"));
  EXPECT_THAT(Verified("partitions = 4, mesh = \"data=4\", parameters = \"data\""), HasSubstr("the module has 1 shardings for 2 parameters"));
  EXPECT_THAT(Verified("partitions = 4, mesh = \"data=4\", results = \"-;data\""), HasSubstr("the module has 2 shardings for 1 results"));
  EXPECT_THAT(Verified("partitions = 4, mesh = \"data=4\", results = \"-,data\""),
              HasSubstr("the sharding '-,data' of result 0, tensor<4x6xf32>, cuts dimension 1 of size 6 into 4 pieces"));
  EXPECT_THAT(Verified("partitions = 2, mesh = \"data=2\", parameters = \"-;-,-,data\""), HasSubstr("of parameter 1, tensor<4x6xf32>, is for 3 dimensions; there are 2"));
  EXPECT_THAT(Verified("partitions = 2, mesh = \"data=2\", parameters = \"data;-\""), HasSubstr("parameter 0 is donated to result 0, which lies otherwise"));
  EXPECT_THAT(Verified("words = 4, partitions = 2, mesh = \"data=2\", parameters = \"data\"",
                       "func @main(%0: tensor<4xf32> {word = 0}) -> (tensor<4xf32>) { return %0 }"),
              HasSubstr("parameter 0 lies in the argument block and is cut"));
  EXPECT_THAT(Verified("parameters = \"data\""), HasSubstr("names the axis 'data'; the mesh has none"));
  EXPECT_THAT(Verified("mesh = \"data\""), HasSubstr("it must be a name, '=' and a size"));
  EXPECT_THAT(Verified("shape = 3"), HasSubstr("words, replicas, partitions, mesh, parameters or results"));
}

}  // namespace
}  // namespace weft::ir
