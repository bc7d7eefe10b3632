// The IR's text prints and parses back exactly, in linear time, and says where a text is wrong.
#include "src/ir/text.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "src/ops/registry.h"
#include "tests/ir/support_ops.h"
#include "tests/support/small_stack.h"

namespace weft::ir {
namespace {

constexpr std::string_view kSmall =
    "module {words = 1}\n"
    "func @main(%0: tensor<2x3xf32>, %1: tensor<f32> {word = 0}) -> (tensor<2x3xf32>, tensor<f32>) {\n"
    "  %2 = broadcast_in_dim(%1) {shape = [2, 3], broadcast_dimensions = []} : tensor<2x3xf32>\n"
    "  %3 = add(%0, %2) : tensor<2x3xf32> loc(\"train.c:42\")\n"
    "  return %3, %1\n"
    "}\n";

std::string RoundTrip(std::string_view text) {
  auto module = Parse(text, FindTestOp);
  return module.ok() ? Print(*module) : std::string(module.status().message());
}

Ref<const Node> Parameter(Type type) { return Node::Create(*ops::FindOp("parameter"), {}, {}, {std::move(type)}); }

Attrs Everything(double d, HostTensor literal) {
  const double nan = __builtin_bit_cast(double, 0xFFF8000000001234u);
  return Attrs{int64_t{-7},
               d,
               int64_t{1},
               int64_t{2},
               DType::kC64,
               Ints{1, -2, std::numeric_limits<int64_t>::min()},
               std::vector<double>{0.1, -0.0, nan, -std::numeric_limits<double>::infinity()},
               std::string("quote \" slash \\ line\n byte \xff // end"),
               Ref<const Literal>(MakeRef<const Literal>(std::move(literal)))};
}

TEST(Text, PrintsAndParsesBackASmallModule) { EXPECT_EQ(RoundTrip(kSmall), kSmall); }

TEST(Text, KeepsEverythingANodeCarries) {
  auto inner = Function::Create("body \"x\"", {}, {});
  auto p = Parameter(Type::Tensor(DType::kU4, {4}));
  auto extras = std::make_unique<NodeExtras>();
  extras->unknown_attributes = {{"mhlo.frontend", "{a = \"b\"}"}, {"x", ""}};
  extras->sharding = "{devices=[4,1]<=[4]}";
  extras->device = 3;
  auto node = Node::Create(kEverything, {Value{p, 0}, Value(), Value{p, 0}}, Everything(1e300, HostTensor(DType::kF64, {})),
                           {Type::Token(), Type::Tuple({Type::Scalar(DType::kF8E4M3FN), Type::Tuple({})})},
                           std::make_unique<const Regions>(Regions{{inner, inner}}), Location{InternFile("a:b\".c"), 7},
                           std::move(extras));
  auto none = Node::Create(kEverything, {Value{node, 1}}, {}, {});
  auto user = Node::Create(kEverything, {Value{node, 1}, Value{node, 0}}, {}, {Type::Tensor(DType::kC128, {0, 2})});
  ParameterInfo info{.donated_to = 0, .device = 9};
  Module module{{Function::Create("main", {Value{p, 0}}, {Value{user, 0}, Value{node, 0}}, {info})}, 5, {.replicas = 2, .partitions = 4}};
  const std::string text = Print(module);
  auto back = Parse(text, FindTestOp);
  ASSERT_TRUE(back.ok()) << back.status() << "\n" << text;
  EXPECT_EQ(Print(*back), text);
  EXPECT_EQ(back->argument_words, 5u);
  EXPECT_EQ(back->participants.replicas, 2u);
  EXPECT_EQ(back->participants.partitions, 4u);
  const Node& copy = *back->main().nodes()[1];
  EXPECT_TRUE(copy.attrs() == node->attrs()) << text;
  EXPECT_EQ(*copy.extras(), *node->extras());
  EXPECT_EQ(ToString(copy.location()), "a:b\".c:7");
  EXPECT_EQ(copy.regions().size(), 2u);
  EXPECT_EQ(copy.regions()[0]->name(), "body \"x\"");
  EXPECT_EQ(copy.type(0), node->type(0));
  EXPECT_EQ(copy.type(1), node->type(1));
  EXPECT_FALSE(copy.operands()[1]);
  EXPECT_EQ(back->main().parameter_infos()[0].donated_to, 0);
  EXPECT_EQ(back->main().parameter_infos()[0].device, 9);
}

TEST(Text, KeepsEveryBitOfDoubles) {
  std::mt19937_64 random(7);
  std::vector<uint64_t> bits = {0, 1, 0x8000000000000000u, 0x000FFFFFFFFFFFFFu, 0x7FEFFFFFFFFFFFFFu, 0x7FF0000000000000u,
                                0xFFF0000000000000u, 0x7FF8000000000000u, 0xFFFFFFFFFFFFFFFFu, 0x7FF0000000000001u};
  for (int i = 0; i < 2000; ++i) bits.push_back(random());
  for (uint64_t b : bits) {
    const double value = __builtin_bit_cast(double, b);
    auto node = Node::Create(kEverything, {}, {std::monostate(), value}, {Type::Scalar(DType::kF32)});
    auto back = Parse(Print(*Function::Create("f", {}, {Value{node, 0}})), FindTestOp);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(__builtin_bit_cast(uint64_t, back->main().nodes()[0]->attrs().Double(1)), b) << DoubleText(value);
  }
}

TEST(Text, KeepsEveryBitOfLiteralsOfEveryType) {
  std::mt19937_64 random(11);
  for (DType dtype : {DType::kBool, DType::kI2, DType::kU2, DType::kI4, DType::kU4, DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI32,
                      DType::kU32, DType::kI64, DType::kU64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kC64,
                      DType::kC128, DType::kF8E4M3FN, DType::kF8E5M2, DType::kF8E8M0FNU}) {
    for (const Dims& dims : {Dims{}, Dims{0, 3}, Dims{3}, Dims{2, 5}, Dims{9, 11}}) {
      for (int kind = 0; kind < 3; ++kind) {  // random bits, a splat of random bits, zeros
        HostTensor value(dtype, dims);
        const size_t width = BytesOf(dtype);
        for (size_t i = 0; i < value.bytes().size() && kind < 2; ++i) {
          const auto byte = static_cast<std::byte>(IsBool(dtype) ? random() % 2 : random());
          value.mutable_bytes()[i] = kind == 1 && i >= width ? value.bytes()[i - width] : byte;
        }
        auto literal = MakeRef<const Literal>(value);
        Attrs attrs;
        attrs.set(8, Ref<const Literal>(literal));
        auto node = Node::Create(kEverything, {}, attrs, {Type::Scalar(DType::kF32)});
        const std::string text = Print(*Function::Create("f", {}, {Value{node, 0}}));
        auto back = Parse(text, FindTestOp);
        ASSERT_TRUE(back.ok()) << back.status() << "\n" << text;
        EXPECT_TRUE(back->main().nodes()[0]->attrs().Tensor(8) == value) << text;
      }
    }
  }
}

TEST(Text, WritesSmallLiteralsAsNumbers) {
  HostTensor value(DType::kF32, {3});
  value.SetDouble(0, 0.1);
  value.SetDouble(1, -2);
  value.SetDouble(2, 1e30);
  Attrs attrs;
  attrs.set(8, Ref<const Literal>(MakeRef<const Literal>(value)));
  auto node = Node::Create(kEverything, {}, attrs, {Type::Scalar(DType::kF32)});
  EXPECT_EQ(PrintNode(*Function::Create("f", {}, {Value{node, 0}}), *node),
            "%0 = test.everything() {l = dense tensor<3xf32> [0.1, -2.0, 1e+30]} : tensor<f32>");
}

struct Mistake {
  std::string_view from, to, error;
};

TEST(Text, SaysWhereATextIsWrongAndWhatWouldBeRight) {
  const Mistake mistakes[] = {
      {"func", "fun", "line 2, column 1: expected func, found \"fun @main(%0: tensor\""},
      {"= add(", "= sum_of(", "line 4, column 8: expected the name of an operation, found \"sum_of(%0, %2) : ten\""},
      {"add(%0, %2)", "add(%0, %7)", "line 4, column 17: expected a value defined above, found \"7) : tensor<2x3xf32>\""},
      {"add(%0, %2)", "add(%0 %2)", "line 4, column 15: expected ',', found \"%2) : tensor<2x3xf32\""},
      {"shape = ", "shade = ", "line 3, column 30: expected an attribute of broadcast_in_dim, found \"shade = [2, 3], broa\""},
      {"[2, 3]", "[2, three]", "line 3, column 42: expected an integer, found \"three], broadcast_di\""},
      {"%0: tensor<2x3xf32>", "%0: tensor<2x3xf33>",
       "line 2, column 27: expected an element type such as f32, found \"f33>, %1: tensor<f32\""},
      {"%3 = add", "%0 = add", "line 4, column 4: expected a number that is not taken yet, found \"0 = add(%0, %2) : te\""},
      {"-> (tensor<2x3xf32>", "-> (tensor<3x2xf32>",
       "line 2, column 65: expected the types of the returned values, found \"tensor<3x2xf32>, ten\""},
      {"train.c:42", "train.c", "line 4, column 42: expected \"file:line\", found \"\\\"train.c\\\")\""},
      {"word = 0", "wort = 0", "line 2, column 50: expected word, donated_to or device, found \"wort = 0}) -> (tenso\""},
      {"  return %3, %1\n}\n", "", "line 5, column 1: expected '%' or return, found the end of the text"},
      {"tensor<2x3xf32>, %1", "tensor<9223372036854775807x3xf32>, %1",
       "line 2, column 16: expected a type of rank at most 32 that memory could hold, found \"tensor<9223372036854\""},
  };
  for (const Mistake& mistake : mistakes) {
    std::string text(kSmall);
    const size_t at = text.find(mistake.from);
    ASSERT_NE(at, std::string::npos) << mistake.from;
    text.replace(at, mistake.from.size(), mistake.to);
    EXPECT_EQ(RoundTrip(text), mistake.error);
  }
}

TEST(Text, RefusesALiteralLargerThanItsText) {
  const std::string text = "func @f() -> () { %0 = test.everything() {l = dense tensor<99999999999xf32> [0.0]} : tensor<f32> return }";
  EXPECT_EQ(RoundTrip(text),
            "line 1, column 53: expected a literal as large as its text, found \"tensor<99999999999xf\"");
}

TEST(Text, SurvivesBrokenTexts) {
  // Whatever is accepted must print to something that parses to the same; nothing may crash or hang.
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  auto node = Node::Create(kEverything, {}, Everything(0.5, HostTensor(DType::kI16, {2})), {Type::Token(), Type::Token()});
  const std::string rich = Print(*Function::Create("r", {}, {Value{node, 1}}));
  const std::string_view bits[] = {"%", "(", ")", "{", "}", "<", ">", "tensor<", "0x", "99999999999", "-1", "\"", "\\x", ":2",
                                   "#1", "func @f() -> () { return }", "regions {", "tuple<", "dense ", "splat ", "nan:0x", "//"};
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text(i % 2 == 0 ? kSmall : std::string_view(rich));
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 8); break;
        case 2: text.insert(at, bits[random() % std::size(bits)]); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 20)); break;
      }
      if (text.empty()) text = " ";
    }
    auto module = Parse(text, FindTestOp);
    if (!module.ok()) {
      EXPECT_EQ(module.status().code(), absl::StatusCode::kInvalidArgument) << module.status();
      continue;
    }
    ++accepted;
    const std::string printed = Print(*module);
    EXPECT_EQ(RoundTrip(printed), printed) << text;
  }
  EXPECT_GT(accepted, 0);
}

TEST(Text, RefusesEndlessNesting) {
  std::string regions, tuples = "func @f(%0: ";
  for (int i = 0; i < 100000; ++i) {
    regions += "func @f() -> () { %0 = test.everything() regions { ";
    tuples += "tuple<";
  }
  EXPECT_NE(RoundTrip(regions).find("expected fewer nested regions"), std::string::npos);
  EXPECT_NE(RoundTrip(tuples).find("expected a shallower tuple"), std::string::npos);
}

TEST(Text, PrintsAndParsesAMillionNodeChainOnASmallStack) {
  test::OnSmallStack([] {
    auto p = Parameter(Type::Scalar(DType::kF32));
    Value x{p, 0};
    for (int i = 0; i < 1000000; ++i) x = Value{Node::Create(*ops::FindOp("add"), {x, x}, {}, {x.type()}), 0};
    Module module{{Function::Create("main", {Value{p, 0}}, {x})}};
    x = Value();
    std::string text = Print(module);
    auto back = Parse(text, FindTestOp);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->main().nodes().size(), 1000001u);
    EXPECT_TRUE(Print(*back) == text);
  });
}

}  // namespace
}  // namespace weft::ir
