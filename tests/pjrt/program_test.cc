// What a plugin is given, and what comes back from the cache: the words' argument, packing, and texts that are none.
#include "src/backends/pjrt/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/ir/stablehlo.h"
#include "src/ops/build.h"
#include "src/ops/custom/custom_call.h"
#include "src/ops/registry.h"
#include "src/stablehlo/read.h"

namespace weft::pjrt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ir::Type;
using ir::Value;

Value Parameter(Type type) { return {ir::Node::Create(ops::kOp_parameter, {}, {}, {std::move(type)}), 0}; }

// x, and a scalar of the words that are not the first: x + scalar.
ir::Module WithWords(DType dtype) {
  const Value x = Parameter(Type::Tensor(dtype, {4})), scalar = Parameter(Type::Scalar(dtype));
  ir::Builder b;
  const Value sum = ops::Add(b, x, ops::BroadcastTo(b, scalar, {4}));
  EXPECT_TRUE(b.ok()) << b.status();
  std::vector<ir::ParameterInfo> infos(2);
  infos[0].donated_to = 0;
  infos[1].role = ir::ParameterInfo::Role::kWords;
  infos[1].word = 1;
  ir::Module module;
  module.functions.push_back(ir::Function::Create("main", {x, scalar}, {sum}, std::move(infos)));
  module.argument_words = 3;
  return module;
}

TEST(PjrtProgram, AllWordsAreOneArgument) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI64, DType::kU64, DType::kBF16, DType::kI8, DType::kU16, DType::kC64}) {
    Program program;
    const auto text = ToText(WithWords(dtype), &program);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_THAT(*text, HasSubstr("tensor<3xui32>) -> ("));
    EXPECT_THAT(*text, HasSubstr("tf.aliasing_output = 0 : i32"));
    EXPECT_EQ(3u, program.words);
    ASSERT_EQ(1u, program.arguments.size());
    EXPECT_EQ(dtype, program.arguments[0].dtype);
    EXPECT_EQ(std::vector<bool>{true}, program.aliased);
  }
}

// The text of main(parameters) = results.
std::string TextOf(std::vector<Value> parameters, std::vector<Value> results, std::string_view platform = "cpu") {
  ir::Module module;
  module.functions.push_back(ir::Function::Create("main", std::move(parameters), std::move(results)));
  Program program;
  const auto text = ToText(module, &program, {.platform = platform});
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

TEST(PjrtProgram, KernelsAreTurnedAroundBeforeTheConvolution) {
  const Value x = Parameter(Type::Tensor(DType::kF32, {1, 5, 5, 2})), k = Parameter(Type::Tensor(DType::kF32, {3, 3, 2, 4}));
  ir::Builder b;
  ir::Attrs attrs = {ir::Ints{1, 1},       ir::Ints{1, 1, 1, 1}, ir::Ints{1, 1},       ir::Ints{1, 1}, ir::Ints{0, 3, 1, 2},
                     ir::Ints{2, 3, 0, 1}, ir::Ints{0, 3, 1, 2}, int64_t{1}, int64_t{1},     ir::Ints{0, 1}};
  const Value y = ops::Call(b, ops::kOp_convolution, {x, k}, attrs);
  ASSERT_TRUE(b.ok()) << b.status();
  const std::string text = TextOf({x, k}, {y});
  EXPECT_THAT(text, HasSubstr("\"stablehlo.reverse\""));
  EXPECT_THAT(text, HasSubstr("array<i64: 1>")) << "kernel_dimensions[2 + 1]";
  EXPECT_THAT(text, HasSubstr("window_reversal = array<i1: false, false>"));
  attrs.set(9, ir::Ints{0, 0});
  EXPECT_THAT(TextOf({x, k}, {ops::Call(b, ops::kOp_convolution, {x, k}, attrs)}), Not(HasSubstr("stablehlo.reverse")));
}

TEST(PjrtProgram, BlocksOfRandomBitsAreComputedOnce) {
  const Value state = Parameter(Type::Tensor(DType::kU64, {3}));
  ir::Builder b;
  const ir::Values results = ops::CallAll(b, ops::kOp_rng_bit_generator, {state}, {ir::Ints{10, 10}, DType::kU32});
  ASSERT_TRUE(b.ok()) << b.status();
  const std::string text = TextOf({state}, {results[0], results[1]});
  EXPECT_THAT(text, HasSubstr("\"stablehlo.multiply\"")) << text;
  for (size_t at = text.find("stablehlo.multiply"); at != text.npos; at = text.find("stablehlo.multiply", at + 1)) {
    EXPECT_THAT(text.substr(at, text.find('\n', at) - at), HasSubstr("-> tensor<25xui32>"));
  }
  EXPECT_THAT(text, HasSubstr("\"stablehlo.optimization_barrier\"")) << "compilers fuse copies of what has several users";
  const std::string for_tpu = TextOf({state}, {results[0], results[1]}, "tpu");
  EXPECT_THAT(for_tpu, AllOf(HasSubstr("-> tensor<25xui32>"), Not(HasSubstr("optimization_barrier"))));
}

TEST(PjrtProgram, WhatNoDeviceHoldsIsRefused) {
  const Value x = Parameter(Type::Tensor(DType::kF32, {int64_t{1} << 40, 8}));
  ir::Module module;
  module.functions.push_back(ir::Function::Create("main", {x}, {x}));
  Program program;
  EXPECT_THAT(ToText(module, &program).status().message(), HasSubstr("has 32 TiB, which no device has"));
}

absl::StatusOr<std::string> TextOfRead(std::string_view stablehlo) {
  WEFT_ASSIGN_OR_RETURN(const ir::Module module, stablehlo::ReadStableHlo(stablehlo));
  Program program;
  return ToText(module, &program);
}

TEST(PjrtProgram, WhatNoDeviceHoldsIsRefusedInFunctionsToo) {
  EXPECT_EQ(TextOfRead("func.func @main(%a: tensor<f32>) -> tensor<f32> {\n"
                       "  %0 = call @f(%a) : (tensor<f32>) -> tensor<f32>\n"
                       "  return %0 : tensor<f32>\n}\n"
                       "func.func private @f(%a: tensor<f32>) -> tensor<f32> {\n"
                       "  %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<8796093022208xf32>\n"
                       "  %1 = stablehlo.slice %0 [0:1] : (tensor<8796093022208xf32>) -> tensor<1xf32>\n"
                       "  %2 = stablehlo.reshape %1 : (tensor<1xf32>) -> tensor<f32>\n"
                       "  return %2 : tensor<f32>\n}\n").status(),
            absl::ResourceExhaustedError("broadcast_in_dim tensor<8796093022208xf32> has 32 TiB, which no device has"));
}

TEST(PjrtProgram, ArgumentsAndResultsThatNoDeviceHoldsTogetherAreRefused) {
  const Value x = Parameter(Type::Tensor(DType::kF32, {int64_t{1} << 40})), y = Parameter(Type::Tensor(DType::kF32, {int64_t{1} << 41}));
  ir::Module module;
  module.functions.push_back(ir::Function::Create("main", {x, y}, {x, y}));
  Program program;
  EXPECT_EQ(ToText(module, &program).status(),
            absl::ResourceExhaustedError("a program's arguments and results have together 24 TiB, which no device has"));
}

TEST(PjrtProgram, DimensionsThatNobodyKnowsReachNoPlugin) {
  const Value x = Parameter(Type::Tensor(DType::kF32, {2, -1}));
  ir::Module module;
  module.functions.push_back(ir::Function::Create("main", {x}, {x}));
  Program program;
  EXPECT_THAT(ToText(module, &program).status().message(), HasSubstr("has a dimension that is not known; plugins want all"));
  EXPECT_THAT(TextOfRead("func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {\n  return %a : tensor<?xf32>\n}\n").status().message(),
              HasSubstr("tensor<?xf32>"));
}

TEST(PjrtProgram, ReplicasBeyondTheProgramReachNoPlugin) {
  const auto error = [](std::string_view groups) {
    return std::string(TextOfRead(absl::StrCat("func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
                                               "  %0 = \"stablehlo.collective_permute\"(%a) <{source_target_pairs = ", groups,
                                               "}> : (tensor<2xf32>) -> tensor<2xf32>\n  return %0 : tensor<2xf32>\n}\n"))
                           .status()
                           .message());
  };
  EXPECT_EQ(error("dense<0> : tensor<1x2xi64>"), "");
  EXPECT_THAT(error("dense<[[0, 1]]> : tensor<1x2xi64>"), HasSubstr("source_target_pairs names process 1; a program has one replica and one partition, process 0"));
  EXPECT_THAT(TextOfRead("func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
                         "  %0 = \"stablehlo.all_gather\"(%a) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 7]]> : tensor<1x2xi64>}> : "
                         "(tensor<2xf32>) -> tensor<2xf32>\n  return %0 : tensor<2xf32>\n}\n")
                  .status()
                  .message(),
              HasSubstr("replica_groups names process 7; a program has one replica and one partition, process 0"));
}

TEST(PjrtProgram, AProgramOfSeveralProcessesSaysSo) {
  ir::Module module = WithWords(DType::kF32);
  module.participants = {.partitions = 2, .mesh = {.axes = {{"data", 2}}, .slots = {}}};
  const ir::Sharding rows{.dimensions = {{.axes = {0}}}};
  module.participants.parameters = {rows, {}};
  module.participants.results = {rows};
  Program program;
  const auto text = ToText(module, &program);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("mhlo.num_partitions = 2 : i32"), HasSubstr("sdy.mesh @mesh = <[\"data\"=2]>"),
                           HasSubstr("%0: tensor<4xf32> {tf.aliasing_output = 0 : i32, sdy.sharding = #sdy.sharding<@mesh, [{\"data\"}]>}"),
                           HasSubstr("%1: tensor<3xui32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"data\"}]>})")))
      << "the words are whole";
  EXPECT_EQ(program.replicas, 1u);
  EXPECT_EQ(program.partitions, 2u);
  const std::string packed = Pack(program, "bytes");
  EXPECT_TRUE(packed.starts_with("weft pjrt 5 1 2\n"));
  Program read;
  EXPECT_EQ(*Unpack(packed, &read), "bytes");
  EXPECT_EQ(read.partitions, 2u);
  EXPECT_EQ(read.mesh, program.mesh);
  EXPECT_EQ(read.lying, program.lying);
  for (const char* wrong : {"data=3 data", "data=2 more", "data=2 data?", "data=2 data;data", "data"}) {
    Program unread;
    EXPECT_FALSE(Unpack(absl::StrCat("weft pjrt 5 1 2\n0\n0 0 0 0\n\n f32/2\n", wrong, "\n-1 0\nx"), &unread).ok()) << wrong;
  }
  program.mesh = {};
  program.lying.clear();
  EXPECT_TRUE(Pack(program, "bytes").starts_with("weft pjrt 4 1 2\n")) << "nothing is known of its results";
  EXPECT_TRUE(Pack(Program(), "").starts_with("weft pjrt 3\n")) << "programs of one process stay as they are on disks";
}

TEST(PjrtProgram, DevicesAreAssignedOnceEach) {
  Program program;
  program.partitions = 2;
  const auto ids = [&](std::vector<uint32_t> assignment) {
    return AssignedIds(program, assignment, 4, [](uint32_t device) { return int64_t{10} + device; });
  };
  EXPECT_THAT(*ids({}), testing::ElementsAre());
  EXPECT_THAT(*ids({3, 0}), testing::ElementsAre(13, 10));
  EXPECT_THAT(ids({0}).status().message(), HasSubstr("the device assignment names 1 devices for a program of 2"));
  EXPECT_THAT(ids({0, 4}).status().message(), HasSubstr("the device assignment names device 4; there are 4"));
  EXPECT_THAT(ids({1, 1}).status().message(), HasSubstr("the device assignment names device 1 twice"));
}

TEST(PjrtProgram, ShardingsReachNoPlugin) {
  // Uneven ones, too: 5 elements on 4 devices.
  constexpr std::string_view kText =
      "module @m {\n  sdy.mesh @mesh = <[\"x\"=4]>\n"
      "  func.func public @main(%a: tensor<5xf32> {mhlo.sharding = \"{devices=[4]<=[4]}\"}) -> tensor<5xf32> {\n"
      "    %0 = stablehlo.add %a, %a {mhlo.sharding = \"{devices=[4]<=[4]}\"} : tensor<5xf32>\n"
      "    %1 = call @f(%0) {my.note = 1 : i32} : (tensor<5xf32>) -> tensor<5xf32>\n"
      "    %2 = stablehlo.tanh %1 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{\"x\"}]>]>} : tensor<5xf32>\n"
      "    return %2 : tensor<5xf32>\n  }\n"
      "  func.func private @f(%a: tensor<5xf32> {mhlo.sharding = \"{devices=[4]<=[4]}\", sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}]>}) -> tensor<5xf32> {\n"
      "    %0 = stablehlo.exponential %a {mhlo.sharding = \"{devices=[4]<=[4]}\"} : tensor<5xf32>\n"
      "    return %0 : tensor<5xf32>\n  }\n}\n";
  const auto text = TextOfRead(kText);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("stablehlo.tanh"), HasSubstr("my.note = 1"), Not(HasSubstr("sharding"))));
  EXPECT_THAT(*ir::ToStableHlo(*stablehlo::ReadStableHlo(kText)), HasSubstr("mhlo.sharding = \"{devices=[4]<=[4]}\"")) << "but a text of the program";
}

TEST(PjrtProgram, CustomOperationsAreRefusedByName) {
  ops::CustomFunction function;
  function.name = "lgamma_r";
  function.signature = *ops::CustomSignature::Parse(ops::CustomKind::kElements, "double(double, scratch int*)");
  const Type type = Type::Tensor(DType::kF64, {2});
  const Value x = Parameter(type);
  ir::Builder b;
  const Value y = ops::Call(b, ops::kOp_custom_call, {x}, ops::CustomAttrs(function, std::span(&type, 1)));
  ASSERT_TRUE(b.ok()) << b.status();
  ir::Module module;
  module.functions.push_back(ir::Function::Create("main", {x}, {y}));
  Program program;
  EXPECT_EQ("the custom operation 'lgamma_r' is a function of this process, which a program of the platform 'tpu' cannot call: it is called in "
            "a loop, in a branch or for each example, or the program is compiled before it runs. Elsewhere the host calls it between two programs; "
            "the platforms 'cpu' and 'reference' call it anywhere",
            ToText(module, &program, {.platform = "tpu"}).status().message());
}

TEST(PjrtProgram, ComesBackAsItWasPacked) {
  Program program;
  program.words = 7;
  program.arguments = {Type::Tensor(DType::kF32, {2, 0, 3}), Type::Scalar(DType::kBool)};
  program.aliased = {false, true};
  program.results = {Type::Tensor(DType::kC64, {5})};
  program.stats = {.temporary_bytes = 12, .code_bytes = 34, .flops = int64_t{1} << 60};
  program.device = 3;
  program.text = "a text\nof two lines";
  const std::string bytes("code\nwith lines\n\0and zeros", 26);
  const std::string packed = Pack(program, bytes);
  Program back;
  const auto found = Unpack(packed, &back);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(bytes, *found);
  EXPECT_EQ(program.words, back.words);
  EXPECT_EQ(program.arguments, back.arguments);
  EXPECT_EQ(program.aliased, back.aliased);
  EXPECT_EQ(program.results, back.results);
  EXPECT_EQ(12, back.stats.temporary_bytes);
  EXPECT_EQ(34, back.stats.code_bytes);
  EXPECT_EQ(int64_t{1} << 60, back.stats.flops);
  EXPECT_EQ(-1, back.stats.bytes_accessed);
  EXPECT_EQ(1, back.stats.kernels);
  EXPECT_EQ(3, back.device);
  EXPECT_EQ(program.text, back.text);
}

TEST(PjrtProgram, WhatWasNotPackedIsNoProgram) {
  const std::string packed = Pack({{Type::Scalar(DType::kF32)}, {false}, 1, {Type::Scalar(DType::kF32)}}, "x");
  for (size_t size = 0; size + 1 < packed.size(); ++size) {
    Program program;
    EXPECT_FALSE(Unpack(std::string_view(packed).substr(0, size), &program).ok()) << size;
  }
  for (const std::string_view wrong : {"weft pjrt 2\n1\n0 0 0 0\n\n\n-1 0\nx", "weft pjrt 4\n1\n0 0 0 0\n\n\n-1 0\nx", "weft pjrt 4 1 x\n1\n0 0 0 0\n\n\n-1 0\nx", "weft pjrt 3\nmany\n0 0 0 0\n\n\n-1 0\nx", "weft pjrt 3\n1\n0 0 0\n\n\n-1 0\nx",
                                       "weft pjrt 3\n1\n0 0 0 x\n\n\n-1 0\nx", "weft pjrt 3\n1\n0 0 0 0\n f33/\n\n-1 0\nx",
                                       "weft pjrt 3\n1\n0 0 0 0\n f32/-1\n\n-1 0\nx", "weft pjrt 3\n1\n0 0 0 0\n f32/99999999999999999999\n\n-1 0\nx",
                                       "weft pjrt 3\n1\n0 0 0 0\n\n *\n-1 0\nx", "weft pjrt 3\n1\n0 0 0 0\n\n\n-1\nx", "weft pjrt 3\n1\n0 0 0 0\n\n\nall 0\nx",
                                       "weft pjrt 3\n1\n0 0 0 0\n\n\n0 2\nx"}) {
    Program program;
    EXPECT_FALSE(Unpack(wrong, &program).ok()) << wrong;
  }
}

TEST(PjrtProgram, OptionsAreTheProtocolBuffer) {
  // Field and value of each: CompileOptionsProto.executable_build_options {4: 1, 5: 1, 6: 1, 19: 1}, compile_portable_executable.
  const std::string_view bytes = CompileOptionBytes();
  ASSERT_EQ(13u, bytes.size());
  EXPECT_EQ(3 << 3 | 2, bytes[0]);
  EXPECT_EQ(9, bytes[1]);
  EXPECT_EQ(4 << 3, bytes[11]);
  EXPECT_EQ(1, bytes[12]);
  // Of one device: 9 device_assignment {1: 1, 2: 1, 3 {1: its id}} before 19, and no field 4.
  using namespace std::string_view_literals;
  EXPECT_EQ("\x1a\x14\x20\x01\x28\x01\x30\x01\x4a\x09\x08\x01\x10\x01\x1a\x03\x0a\x01\x00\x98\x01\x01"sv, CompileOptionBytes(0));
  // Of two partitions on devices 2 and 300, each a computation; and of two replicas that the plugin places.
  const int64_t devices[] = {2, 300};
  EXPECT_EQ("\x1a\x1a\x20\x01\x28\x02\x30\x01\x4a\x0f\x08\x01\x10\x02\x1a\x03\x0a\x01\x02\x1a\x04\x0a\x02\xac\x02\x98\x01\x01"sv,
            CompileOptionBytes(1, 2, devices));
  EXPECT_EQ("\x1a\x09\x20\x02\x28\x01\x30\x01\x98\x01\x01"sv, CompileOptionBytes(2, 1, {}));
  EXPECT_EQ("\x1a\x15\x20\x01\x28\x01\x30\x01\x4a\x0a\x08\x01\x10\x01\x1a\x04\x0a\x02\xac\x02\x98\x01\x01"sv, CompileOptionBytes(300));
}

}  // namespace
}  // namespace weft::pjrt
