// Collectives of programs that several processes run: shapes by the size of a group, what is refused, and texts that come back.
// Platforms of one process refuse such programs by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/backends/reference/reference_backend.h"
#include "src/ir/stablehlo.h"
#include "src/ops/collective/processes.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"
#include "src/passes/pipeline.h"
#include "tests/stablehlo/read_support.h"
#include "tests/support/cpu_under_test.h"

namespace weft::stablehlo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(std::string_view head, std::string_view argument, std::string_view result, std::string_view op) {
  return absl::StrCat("module @m attributes {", head, "} {\nfunc.func public @main(%a: ", argument, ") -> ", result, " {\n  %0 = ", op,
                      " : (", argument, ") -> ", result, "\n  return %0 : ", result, "\n}\n}\n");
}
constexpr std::string_view kFour = "mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32";
constexpr std::string_view kPairs = "replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>";
constexpr std::string_view kAll = "replica_groups = dense<[[0, 2, 1, 3]]> : tensor<1x4xi64>";
constexpr std::string_view kSum =
    " ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n  %s = stablehlo.add %x, %y : tensor<f32>\n  stablehlo.return %s : tensor<f32>\n})";

absl::StatusOr<ir::Module> ReadAll(std::string_view text) { return ReadStableHlo(text, {.alone = false}); }

std::string ErrorOf(std::string_view text, bool alone = false) {
  const auto module = ReadStableHlo(text, {.alone = alone});
  if (!module.ok()) return std::string(module.status().message());
  return "none";
}

std::string Gather(std::string_view groups, std::string_view result, std::string_view head = kFour, int dim = 0) {
  return Text(head, "tensor<4x6xf32>", result,
              absl::StrCat("\"stablehlo.all_gather\"(%a) <{all_gather_dim = ", dim, " : i64, ", groups, "}>"));
}
std::string Reduce(std::string_view groups, std::string_view head = kFour) {
  return Text(head, "tensor<4x6xf32>", "tensor<4x6xf32>", absl::StrCat("\"stablehlo.all_reduce\"(%a) <{", groups, "}>", kSum));
}
std::string Scatter(std::string_view groups, std::string_view result, int dim) {
  return Text(kFour, "tensor<4x6xf32>", result,
              absl::StrCat("\"stablehlo.reduce_scatter\"(%a) <{scatter_dimension = ", dim, " : i64, ", groups, "}>", kSum));
}
std::string ToAll(std::string_view groups, std::string_view result, int count, int split = 1, int concat = 0) {
  return Text(kFour, "tensor<4x6xf32>", result,
              absl::StrCat("\"stablehlo.all_to_all\"(%a) <{split_dimension = ", split, " : i64, concat_dimension = ", concat,
                           " : i64, split_count = ", count, " : i64, ", groups, "}>"));
}
std::string Permute(std::string_view pairs, std::string_view head = kFour) {
  return Text(head, "tensor<4x6xf32>", "tensor<4x6xf32>", absl::StrCat("\"stablehlo.collective_permute\"(%a) <{source_target_pairs = ", pairs, "}>"));
}

TEST(Collectives, ShapesFollowFromTheSizeOfAGroup) {
  for (const std::string& text :
       {Gather(kPairs, "tensor<8x6xf32>"), Gather(kAll, "tensor<4x24xf32>", kFour, 1), Reduce(kPairs), Reduce(kAll),
        Reduce("replica_groups = dense<> : tensor<0x0xi64>"), Scatter(kPairs, "tensor<2x6xf32>", 0), Scatter(kAll, "tensor<1x6xf32>", 0),
        Scatter(kPairs, "tensor<4x3xf32>", 1), ToAll(kPairs, "tensor<8x3xf32>", 2), ToAll(kAll, "tensor<4x6xf32>", 4, 0, 0),
        Permute("dense<[[0, 1], [1, 0], [2, 3]]> : tensor<3x2xi64>"),
        // Who is filled up is nobody.
        Gather("replica_groups = dense<[[0, 1, -1], [2, 3, -1]]> : tensor<2x3xi64>", "tensor<8x6xf32>")}) {
    const auto module = ReadAll(text);
    ASSERT_TRUE(module.ok()) << module.status() << "\n" << text;
    EXPECT_EQ(module->participants.count(), 4u);
    EXPECT_TRUE(ir::Verify(*module).ok()) << ir::Verify(*module);
    EXPECT_TRUE(ops::CheckProcesses(*module).ok()) << ops::CheckProcesses(*module);
  }
  EXPECT_THAT(ErrorOf(Gather(kPairs, "tensor<4x6xf32>")), HasSubstr("gives tensor<8x6xf32>; the text says tensor<4x6xf32>"));
}

TEST(Collectives, GroupsThatCannotBeAreRefused) {
  const auto groups = [](std::string_view dense) { return absl::StrCat("replica_groups = ", dense); };
  EXPECT_THAT(ErrorOf(Reduce(groups("dense<[[0, 1, 2], [3, -1, -1]]> : tensor<2x3xi64>"))),
              HasSubstr("stablehlo.all_reduce: all_reduce(f32[4, 6]): replica_groups has groups of 3 and of 1 processes; all must have the same size"));
  EXPECT_THAT(ErrorOf(Reduce(groups("dense<[[0, 1]]> : tensor<1x2xi64>"))), HasSubstr("replica_groups leaves out process 2 of 4"));
  EXPECT_THAT(ErrorOf(Reduce(groups("dense<[[0, 1], [2, 1]]> : tensor<2x2xi64>"))), HasSubstr("replica_groups names process 1 2 times"));
  EXPECT_THAT(ErrorOf(Reduce(groups("dense<[[0, 1], [2, 4]]> : tensor<2x2xi64>"))),
              HasSubstr("replica_groups names process 4; the program has 4, 0 to 3"));
  EXPECT_THAT(ErrorOf(Reduce(groups("dense<[[0, 1], [2, -2]]> : tensor<2x2xi64>"))), HasSubstr("replica_groups names process -2; the program has 4"));
  EXPECT_THAT(ErrorOf(Gather(groups("dense<> : tensor<0x0xi64>"), "tensor<4x6xf32>")),
              HasSubstr("replica_groups is empty; all_gather needs the 4 processes by name"));
  EXPECT_THAT(ErrorOf(Scatter(kAll, "tensor<4x2xf32>", 1)), HasSubstr("scatter_dimension has 6 elements, which 4 processes cannot share out evenly"));
  EXPECT_THAT(ErrorOf(ToAll(kAll, "tensor<16x2xf32>", 4)), HasSubstr("split_dimension has 6 elements, which 4 processes cannot share out evenly"));
  EXPECT_THAT(ErrorOf(ToAll(kAll, "tensor<8x3xf32>", 2)), HasSubstr("split_count is 2; it must be 4, the size of the group"));
  EXPECT_THAT(ErrorOf(Gather(kAll, "tensor<8x6xf32>", kFour, 2)), HasSubstr("all_gather_dim is 2; the operand f32[4, 6] has rank 2"));
  EXPECT_THAT(ErrorOf(Permute("dense<[[0, 1], [0, 2]]> : tensor<2x2xi64>")), HasSubstr("source_target_pairs names process 0 2 times as a source"));
  EXPECT_THAT(ErrorOf(Permute("dense<[[0, 1], [2, 1]]> : tensor<2x2xi64>")), HasSubstr("source_target_pairs names process 1 2 times as a target"));
  EXPECT_THAT(ErrorOf(Permute("dense<[[0, 4]]> : tensor<1x2xi64>")), HasSubstr("source_target_pairs names process 4; the program has 4, 0 to 3"));
  EXPECT_THAT(ErrorOf(Permute("dense<[[0, -1]]> : tensor<1x2xi64>")), HasSubstr("source_target_pairs names process -1"));
}

// As before there were others.
TEST(Collectives, AProgramOfOneProcessHasNoOthers) {
  EXPECT_THAT(ErrorOf(Reduce(kPairs), true), HasSubstr("replica_groups names process 1; a program has one replica and one partition, process 0, in this version"));
  EXPECT_THAT(ErrorOf(Reduce("replica_groups = dense<-1> : tensor<1x1xi64>"), true),
              HasSubstr("replica_groups has no group of process 0, which runs this program"));
  EXPECT_EQ(ErrorOf(Reduce("replica_groups = dense<[[0, -1]]> : tensor<1x2xi64>"), true), "none");
  EXPECT_EQ(ErrorOf(Gather("replica_groups = dense<> : tensor<0x0xi64>", "tensor<4x6xf32>", ""), true), "none");
  EXPECT_THAT(ErrorOf(Reduce(kPairs, ""), false), HasSubstr("in this version")) << "the text says no number";
  const auto module = ReadAll(Gather("replica_groups = dense<0> : tensor<1x1xi64>", "tensor<4x6xf32>", ""));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto expanded = passes::ExpandComposites(*module, {});
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  EXPECT_THAT(ir::Print(*expanded), Not(HasSubstr("all_gather")));
}

TEST(Collectives, OfSeveralProcessesAreNotExpanded) {
  for (const std::string& text :
       {Reduce(kPairs), Gather("replica_groups = dense<[[0], [1], [2], [3]]> : tensor<4x1xi64>", "tensor<4x6xf32>"), Permute("dense<0> : tensor<1x2xi64>"),
        absl::StrCat("module @m attributes {", kFour, "} {\nfunc.func public @main() -> tensor<ui32> {\n"
                     "  %0 = stablehlo.partition_id : tensor<ui32>\n  return %0 : tensor<ui32>\n}\n}\n")}) {
    auto module = ReadAll(text);
    ASSERT_TRUE(module.ok()) << module.status();
    const std::string name(module->main().nodes().back()->op().name);
    const auto through = passes::RunPipeline(*module, {.verify_between = true});
    ASSERT_TRUE(through.ok()) << through.status();
    EXPECT_THAT(ir::Print(*through), HasSubstr(name));
    EXPECT_TRUE(through->participants == module->participants);
    // In a program of one it is what one process does, or is refused; it never quietly means another thing.
    module->participants = {};
    const auto alone = passes::ExpandComposites(*module, {});
    if (alone.ok()) EXPECT_THAT(ir::Print(*alone), Not(HasSubstr(name)));
    if (name == "all_reduce") EXPECT_THAT(std::string(alone.status().message()), HasSubstr("replica_groups names process 1; a program has one"));
  }
}

TEST(Collectives, PlatformsOfOneProcessRefuseByName) {
  const auto module = ReadAll(Reduce(kPairs));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto cpu = test::NewCpuBackend({.threads = 1}).value();
  const auto reference = NewReferenceBackend();
  for (Backend* backend : {static_cast<Backend*>(cpu.get()), static_cast<Backend*>(reference.get())}) {
    const absl::Status status = backend->Compile(*module, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("all_reduce: the platform '", backend->platform(),
                                       "' runs programs of one process; this one has 1 replicas of 4 partitions")));
    ir::Module none = *module;
    none.functions = {ir::Function::Create("main", {}, {})};
    EXPECT_THAT(std::string(backend->Compile(none, {}).status().message()), HasSubstr("runs programs of one process"));
  }
}

TEST(Collectives, TextsNameTheirChannelsAndDevices) {
  const auto text = [](const std::string& read) {
    const auto module = ReadAll(read);
    EXPECT_TRUE(module.ok()) << module.status();
    const auto written = ir::ToStableHlo(*module);
    EXPECT_TRUE(written.ok()) << written.status();
    // What is written is read again to the same text.
    const auto again = ReadAll(*written);
    EXPECT_TRUE(again.ok()) << again.status() << *written;
    EXPECT_EQ(*ir::ToStableHlo(*again), *written);
    return *written;
  };
  EXPECT_THAT(text(Reduce(kPairs)),
              AllOf(HasSubstr("mhlo.num_partitions = 4 : i32"), HasSubstr("replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"),
                    HasSubstr("channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"), HasSubstr("use_global_device_ids = unit")));
  EXPECT_THAT(text(Reduce(absl::StrCat(kPairs, ", channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>, use_global_device_ids"))),
              AllOf(HasSubstr("handle = 7, type = 1"), HasSubstr("use_global_device_ids = unit"), Not(HasSubstr("handle = 1,"))));
  EXPECT_THAT(text(Permute("dense<[[0, 1]]> : tensor<1x2xi64>")), HasSubstr("channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"));
  EXPECT_THAT(text(ToAll(kPairs, "tensor<8x3xf32>", 2)), AllOf(HasSubstr("handle = 1, type = 1"), Not(HasSubstr("use_global_device_ids"))));
  // Each has one of its own, which nobody else has.
  const std::string two = absl::StrCat(
      "module @m attributes {", kFour, "} {\nfunc.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
      "  %0 = \"stablehlo.all_reduce\"(%a) <{", kPairs, ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}>", kSum,
      " : (tensor<4xf32>) -> tensor<4xf32>\n  %1 = \"stablehlo.all_reduce\"(%0) <{", kAll, "}>", kSum, " : (tensor<4xf32>) -> tensor<4xf32>\n"
      "  return %1 : tensor<4xf32>\n}\n}\n");
  EXPECT_THAT(text(two), AllOf(HasSubstr("handle = 1, type = 1"), HasSubstr("handle = 2, type = 1")));
  // Replicas need no channel, and one process nothing.
  EXPECT_THAT(text(Reduce(kPairs, "mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 4 : i32")),
              AllOf(HasSubstr("mhlo.num_replicas = 4"), Not(HasSubstr("channel_handle")), Not(HasSubstr("use_global_device_ids"))));
  EXPECT_THAT(text(Reduce("replica_groups = dense<0> : tensor<1x1xi64>", "")), Not(HasSubstr("channel_handle")));
}

TEST(Collectives, AMeshIsWrittenForThePartitioner) {
  auto module = ReadAll(Reduce(kAll));
  ASSERT_TRUE(module.ok()) << module.status();
  module->participants.mesh = {.axes = {{"data", 2}, {"model", 2}}, .slots = {0, 2, 1, 3}};
  module->participants.parameters = {ir::Sharding{.dimensions = {{.axes = {0, 1}}}}};
  module->participants.results = {ir::Sharding{.dimensions = {{}, {.axes = {1}, .open = true}}}};
  ASSERT_TRUE(ir::Verify(*module).ok()) << ir::Verify(*module);
  const auto text = ir::ToStableHlo(*module);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("\n  sdy.mesh @mesh = <[\"data\"=2, \"model\"=2], device_ids=[0, 2, 1, 3]>\n"),
                           HasSubstr("(%0: tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"data\", \"model\"}, {}]>}) -> "
                                     "(tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"model\", ?}]>}) {")));
  // The module that is read has the mesh and the shardings, and is written to the same text.
  const auto again = ReadAll(*text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->participants == module->participants);
  EXPECT_EQ(*ir::ToStableHlo(*again), *text);
  module->participants.mesh.slots = {};
  module->participants.parameters = {};
  EXPECT_THAT(*ir::ToStableHlo(*module), AllOf(HasSubstr("sdy.mesh @mesh = <[\"data\"=2, \"model\"=2]>\n"), HasSubstr("<@mesh, [{}, {}]>}) -> ")));
}

// @main(%a) -> %0 on a mesh of two by two, with this in its body.
std::string Placed(std::string_view body, std::string_view mesh = "<[\"x\"=2, \"y\"=2]>", std::string_view argument = "{}") {
  return absl::StrCat("module @m attributes {", kFour, "} {\nsdy.mesh @mesh = ", mesh, "\nfunc.func public @main(%a: tensor<4x6xf32> ", argument,
                      ") -> tensor<4x6xf32> {\n", body, "\n  return %0 : tensor<4x6xf32>\n}\n}\n");
}
std::string Constrained(std::string_view sharding) { return absl::StrCat("  %0 = sdy.sharding_constraint %a ", sharding, " : tensor<4x6xf32>"); }

TEST(Collectives, ShardingsOfATextAreThoseOfItsValues) {
  const auto printed = [](const std::string& text) {
    const auto module = ReadAll(text);
    EXPECT_TRUE(module.ok()) << module.status();
    return module.ok() ? ir::Print(*module) : "";
  };
  EXPECT_THAT(printed(Placed(Constrained("<@mesh, [{\"x\", \"y\"}, {}]>"))), HasSubstr("spec = \"x+y,-\""));
  EXPECT_THAT(printed(Placed(Constrained("<@mesh, [{\"y\", ?}p1, {?}]>"))), HasSubstr("spec = \"y,-\""));
  EXPECT_THAT(printed(Placed(Constrained("<@mesh, [{?}, {?}]>"))), Not(HasSubstr("shard")));
  EXPECT_THAT(printed(Placed("  %0 = \"sdy.sharding_constraint\"(%a) <{sharding = #sdy.sharding<@mesh, [{}, {\"x\"}]>}> : (tensor<4x6xf32>) -> tensor<4x6xf32>")),
              HasSubstr("spec = \"-,x\""));
  const auto entry = ReadAll(Placed(Constrained("<@mesh, [{}, {}]>"), "<[\"x\"=2, \"y\"=2]>", "{sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}, {}]>}"));
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(ir::ToString(entry->participants.mesh, entry->participants.parameters[0], 2), "x,-");
  EXPECT_EQ(ir::ToString(entry->participants.mesh, entry->participants.results[0], 2), "-?,-?") << "what the text does not say is open";
}

TEST(Collectives, ShardingsThatCannotBeAreRefused) {
  EXPECT_THAT(ErrorOf(Placed(Constrained("<@mesh, [{\"z\"}, {}]>"))), HasSubstr("names the axis 'z'; the mesh is x=2,y=2"));
  EXPECT_THAT(ErrorOf(Placed(Constrained("<@mesh, [{\"x\", \"x\"}, {}]>"))), HasSubstr("uses the axis x twice"));
  EXPECT_THAT(ErrorOf(Placed(Constrained("<@mesh, [{}, {\"x\", \"y\"}]>"))), HasSubstr("cuts dimension 1 of size 6 into 4 pieces"));
  EXPECT_THAT(ErrorOf(Placed(Constrained("<@mesh, [{}, {\"x\":(1)2}]>"))), HasSubstr("cuts along a part of an axis"));
  EXPECT_THAT(ErrorOf(Placed(Constrained("<mesh<[\"x\"=2]>, [{}, {}]>"))), HasSubstr("has a mesh of its own"));
  EXPECT_THAT(ErrorOf(Placed(Constrained("<@mesh, [{}, {}]>"), "<[\"x\"=2, \"x\"=2]>")), HasSubstr("two axes of the mesh are called x"));
  EXPECT_THAT(ErrorOf(Placed(Constrained("<@mesh, [{}, {}]>"), "<[\"x\"=2]>\nsdy.mesh @other = <[\"y\"=4]>")), HasSubstr("the text has two meshes, x=2 and y=4"));
  EXPECT_THAT(ErrorOf(Placed("  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{}, {}]>] out_shardings=[<@mesh, [{}, {}]>] manual_axes={\"x\"} "
                             "(%p: tensor<4x6xf32>) {\n    sdy.return %p : tensor<4x6xf32>\n  } : (tensor<4x6xf32>) -> tensor<4x6xf32>")),
              HasSubstr("manual_axes names 1 axes of the mesh x=2,y=2; all must be manual"));
  // Read for one process they say nothing.
  EXPECT_EQ(ErrorOf(Placed(Constrained("<@mesh, [{\"z\"}, {}]>")), true), "none");
}

}  // namespace
}  // namespace weft::stablehlo
