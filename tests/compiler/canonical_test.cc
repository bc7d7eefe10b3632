// The canonical form: equal for equal programs, different for everything that may change a result.
#include "src/compiler/canonical.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/compiler/build_id.h"
#include "src/compiler/lower.h"
#include "src/compiler/program_cache.h"
#include "src/ir/code.h"
#include "src/ir/verify.h"
#include "src/ops/build.h"

namespace weft::compiler {
namespace {

using ir::Value;

Value Leaf(DType dtype, Dims dims) {
  return {ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(dtype, std::move(dims))}), 0};
}

// f(a, b) over the given leaf types; references by hand.
struct Sketch {
  Trace trace;
  std::vector<Value> alive;
  uint32_t Argument(Value leaf, uint32_t words = 0) {
    trace.arguments.push_back({leaf.node.get(), 0, words, -1});
    trace.words += words;
    alive.push_back(std::move(leaf));
    return Trace::OfArgument(static_cast<uint32_t>(trace.arguments.size() - 1));
  }
  uint32_t Node(const Value& value, std::vector<Trace::Reference> operands) {
    trace.nodes.push_back(value.node.get());
    alive.push_back(value);
    trace.operands.insert(trace.operands.end(), operands.begin(), operands.end());
    trace.values += static_cast<uint32_t>(value.node->results().size());
    return Trace::OfValue(trace.values - static_cast<uint32_t>(value.node->results().size()));
  }
  std::string Text() const {
    std::string text;
    AppendCanonical(trace, &text);
    return text;
  }
};

Sketch Product(DType dtype, Dims dims, bool swapped, uint32_t words = 0, int32_t donated = -1) {
  ir::Builder b;
  Sketch s;
  Value x = Leaf(dtype, dims), y = Leaf(dtype, dims), z = Leaf(dtype, dims);
  auto rx = s.Argument(x), ry = s.Argument(y, words), rz = s.Argument(z);
  s.trace.arguments[0].donated_to = donated;
  // (x * y) + z or (x * z) + y: as trees with anonymous leaves these are one.
  Value p = ops::Mul(b, x, swapped ? z : y);
  auto rp = s.Node(p, {rx, swapped ? rz : ry});
  auto rs = s.Node(ops::Add(b, p, swapped ? y : z), {rp, swapped ? ry : rz});
  s.trace.outputs = {rs};
  return s;
}

std::string CodeOf(const ir::Function& function) {
  std::string code;
  AppendCanonical(function, &code);
  return code;
}

// Arguments, and nodes that have bytes of their own, can be read alone.
void ExpectPartsReadBack(const Trace& trace, std::string_view form) {
  std::string again = "before it";
  PassedNodes all;
  AppendCanonical(trace, &again, &all);
  const std::vector<PassedNode>& passed = all.nodes;
  EXPECT_EQ(again.substr(9), form);
  ASSERT_EQ(passed.size(), trace.nodes.size() + 1);
  EXPECT_EQ(passed.back().first_operand, trace.operands.size());
  EXPECT_EQ(passed.back().first_value, trace.values);
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const auto [place, op, id, at, first_operand, first_value] = passed[i];
    EXPECT_EQ(op, &trace.nodes[i]->op());
    EXPECT_EQ(id, trace.nodes[i]->id());
    EXPECT_LE(all.least_id, id);
    EXPECT_GE(all.greatest_id, id);
    EXPECT_EQ(ir::ToString(at), ir::ToString(trace.nodes[i]->location()));
    EXPECT_EQ(passed[i + 1].first_operand - first_operand, trace.nodes[i]->operands().size());
    EXPECT_EQ(passed[i + 1].first_value - first_value, trace.nodes[i]->results().size());
    EXPECT_EQ(place.end == 0, !trace.nodes[i]->regions().empty());
    if (place.end == 0) continue;
    const std::string_view bytes = form.substr(place.begin, place.end - place.begin);
    const Ref<const ir::Node> node = ReadNode(bytes);
    ASSERT_NE(node, nullptr);
    std::string code;
    ir::CodeWriter(&code).Node(*node);
    EXPECT_EQ(code, bytes);
    EXPECT_EQ(ReadNode(bytes.substr(1)), nullptr);
  }
  const auto arguments = ReadArguments(form);
  ASSERT_TRUE(arguments.ok());
  ASSERT_EQ(arguments->size(), trace.arguments.size());
  for (size_t i = 0; i < arguments->size(); ++i) {
    EXPECT_TRUE((*arguments)[i].type == trace.arguments[i].type());
    EXPECT_EQ((*arguments)[i].words, trace.arguments[i].words > 0);
  }
}

// The function that the form stands for is the one that is built of the trace.
void ExpectReadsBack(const Trace& trace) {
  std::string form;
  AppendCanonical(trace, &form);
  const absl::StatusOr<Ref<const ir::Function>> read = ReadCanonical(form);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(CodeOf(**read), CodeOf(BuildModule(trace).main()));
  ExpectPartsReadBack(trace, form);
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    EXPECT_TRUE((*read)->parameters()[i].type() == trace.arguments[i].type());
  }
  // A part of it is refused, and so is more.
  EXPECT_FALSE(ReadCanonical(form + "x").ok());
  for (size_t length = 0; length < form.size(); length += 1 + form.size() / 8) {
    EXPECT_FALSE(ReadCanonical(std::string_view(form).substr(0, length)).ok()) << length;
  }
}

TEST(Canonical, TellsApartWhatMayChangeAResult) {
  std::set<std::string> forms;
  forms.insert(Product(DType::kF32, {2, 3}, false).Text());
  forms.insert(Product(DType::kF32, {2, 3}, true).Text());
  forms.insert(Product(DType::kF64, {2, 3}, false).Text());
  forms.insert(Product(DType::kF32, {3, 2}, false).Text());
  forms.insert(Product(DType::kF32, {6}, false).Text());
  forms.insert(Product(DType::kF32, {2, 3}, false, 1).Text());
  forms.insert(Product(DType::kF32, {2, 3}, false, 0, 0).Text());
  Sketch two = Product(DType::kF32, {2, 3}, false);
  two.trace.outputs.push_back(Trace::OfValue(0));
  forms.insert(two.Text());
  EXPECT_EQ(forms.size(), 8u);
}

TEST(Canonical, IsTheSameForTheSameProgramRecordedAgain) {
  EXPECT_EQ(Product(DType::kF32, {2, 3}, true).Text(), Product(DType::kF32, {2, 3}, true).Text());
}

TEST(Canonical, HoldsAttributesAndTheBitsOfLiterals) {
  std::set<std::string> forms;
  for (double value : {0.0, -0.0, 1.0, 1.0000001}) {
    ir::Builder b;
    Sketch s;
    s.trace.outputs = {s.Node(ops::Scalar(b, DType::kF64, value), {})};
    forms.insert(s.Text());
  }
  for (int64_t axis : {0, 1}) {
    ir::Builder b;
    Sketch s;
    Value x = Leaf(DType::kF32, {2, 2});
    auto rx = s.Argument(x);
    s.trace.outputs = {s.Node(ops::Call(b, ops::kOp_softmax, {x}, {axis}), {rx})};
    forms.insert(s.Text());
  }
  EXPECT_EQ(forms.size(), 6u);
}

TEST(Canonical, ReadsBack) {
  for (const bool swapped : {false, true}) {
    for (const int32_t donated : {-1, 0}) ExpectReadsBack(Product(DType::kF32, {2, 3}, swapped, 1, donated).trace);
  }
  ir::Builder b;
  Sketch s;
  Value x = Leaf(DType::kF32, {2, 2});
  auto rx = s.Argument(x);
  Value softmax = ops::Call(b, ops::kOp_softmax, {x}, {1});
  auto rs = s.Node(softmax, {rx});
  Value literal = ops::Scalar(b, DType::kF32, 0.5);
  auto rl = s.Node(literal, {});
  Value sum = ops::Call(b, ops::kOp_mul, {softmax, literal});
  s.trace.outputs = {s.Node(sum, {rs, rl}), rs};
  ExpectReadsBack(s.trace);
}

// The fuzzer found these: a literal of gigabytes without their bytes, a function in a node without a result; and tuples in tuples, many
// arguments in few bytes.
TEST(Canonical, BytesThatNobodyWroteAreRefusedAtOnce) {
  const char* const found[] = {
      "AgABAILABAIICAAAAgCCwAQAAwhjb25zdGFudEEHgsAEAgj4v8/5AAAAAAAAAAAAAIwAAEBAAACAQAAAoEAAAMBAAADgQAAAAEEAAAAAQABAAE"
      "AAAIBAAQIJPXRyYW5zAILABAADAA7/////////////AQCCwAQCCACCwAQCCAj/AgABAILABAIICAAAAgCCwAQAAwhjb25zdGFudEEHgsAEAggI"
      "QDAAAAAAAAAAAAAAAIwAAEBAAACAQAAAoEAAAMBAAADgQAAAAEEAAAAAQABAAEAAAIBAAQIJPXRyYW5zAILABAAD//9ACAAAAAEEAQY=",
      "AgABAILABAIICAAAAgCCwAQAAwhjb25zdGFudAEHgsAEAggIQAAAAAAAAIA/AAAAQAAAQEAAAIBAAACgQAAAwEAAAOBAAAAAQQAAEEEAACBBAA"
      "A1QQAAQEE9AFBBAABgQQAAcEEBAILABAIICOsAAAgAAAAAAAAAAAEAggABAQAAAAAAADUAAgECCXRyYW5zcG9zZQEE29vb29vb29vb29vb29vb"
      "AgABAILABAIICAAAAgCCwAQAAwhjb25zdGFudAGrq6urq6urq6sAAADb29vb29vb29vb29vb29vb29vb29vb2wY="};
  for (const char* text : found) {
    std::string bytes;
    ASSERT_TRUE(absl::Base64Unescape(text, &bytes));
    EXPECT_TRUE(absl::IsInternal(ReadCanonical(bytes).status()));
  }
  // One argument that is a number of one word, and its type: so many tuples of one.
  std::string tuples("\x01\0\x02", 3);
  for (int i = 0; i < 1'000'000; ++i) tuples += "\x02\x01";
  EXPECT_TRUE(absl::IsInternal(ReadCanonical(tuples).status()));
  // 2^30 arguments: one of a kind, and as many as are left that are like it.
  const std::string type("\0\x82\xc0\x04\0", 5);  // f32[]
  const std::string many = "\x80\x80\x80\x80\x04" + std::string(2, '\0') + type + "\x01\xff\xff\xff\xff\x03\x01";
  EXPECT_TRUE(absl::IsInternal(ReadCanonical(many).status()));
}

TEST(Canonical, OfAFunctionFollowsItsOwnNumbers) {
  auto form = [](bool swapped) {
    std::string text;
    AppendCanonical(BuildModule(Product(DType::kF32, {2}, swapped).trace).main(), &text);
    return text;
  };
  EXPECT_EQ(form(false), form(false));
  EXPECT_NE(form(false), form(true));
}

// So many calls of one function, one on what the other gives, each with weights of its own.
Sketch Calls(int layers, bool swapped = false, bool donated = false) {
  constexpr size_t kWeights = 10;
  std::vector<Value> parameters;
  for (size_t i = 0; i <= kWeights; ++i) parameters.push_back(Leaf(DType::kF32, {static_cast<int64_t>(1 + i % 3), 8}));
  ir::Builder b;
  Value sum = ops::Unary(b, ops::kOp_tanh, parameters[0]);
  for (size_t i = 1; i <= kWeights; ++i) sum = ops::Add(b, sum, ops::Reduce(b, parameters[i], ops::Reducer::kSum, {0, 1}));
  const Ref<const ir::Function> layer = ir::Intern(ir::Function::Create("layer", parameters, {sum}));
  Sketch s;
  Value x = Leaf(DType::kF32, {1, 8});
  Trace::Reference rx = s.Argument(x);
  for (int l = 0; l < layers; ++l) {
    ir::Values operands = {x};
    std::vector<Trace::Reference> references = {rx};
    for (size_t i = 1; i <= kWeights; ++i) {
      operands.push_back(Leaf(DType::kF32, parameters[i].dims()));
      references.push_back(s.Argument(operands.back()));
      if (donated) s.trace.arguments.back().donated_to = static_cast<int32_t>(s.trace.arguments.size()) - 2;
    }
    // Two weights of one type.
    if (swapped && l == layers - 1) std::swap(references[1], references[4]);
    x = ops::Call(b, ops::kOp_call, std::move(operands), {}, {&layer, 1});
    rx = s.Node(x, references);
  }
  s.trace.outputs = {rx};
  return s;
}

TEST(Canonical, ReadsBackCalls) {
  for (const int layers : {1, 2, 3, 4, 9, 40}) {
    for (const bool swapped : {false, true}) {
      for (const bool donated : {false, true}) ExpectReadsBack(Calls(layers, swapped, donated).trace);
    }
  }
}

TEST(Canonical, CountsEqualLayers) {
  for (const bool donated : {false, true}) {
    const size_t two = Calls(2, false, donated).Text().size(), many = Calls(96, false, donated).Text().size();
    EXPECT_LE(many, two + 16) << "donated: " << donated;  // longer numbers, how many there are, the third call
    EXPECT_EQ(many, Calls(97, false, donated).Text().size());
  }
}

// All that the form is to tell apart, at length.
std::string Plainly(const Trace& trace) {
  std::string text;
  for (const Trace::Argument& a : trace.arguments) {
    absl::StrAppend(&text, ir::ToString(a.type()), " ", a.words, " ", a.donated_to, "; ");
  }
  for (const ir::Node* node : trace.nodes) {
    absl::StrAppend(&text, node->op().name, " ", node->regions().empty() ? "" : node->regions()[0]->name(), " ", node->operands().size(), "; ");
  }
  absl::StrAppend(&text, absl::StrJoin(trace.operands, " "), "; ", absl::StrJoin(trace.outputs, " "));
  return text;
}

// Whether nothing in it refers to what is not there yet.
bool RefersBack(const Trace& trace) {
  uint32_t values = 0;
  const auto there = [&](Trace::Reference reference) {
    if (reference == Trace::kAbsent) return true;
    return Trace::IndexOf(reference) < (Trace::IsArgument(reference) ? trace.arguments.size() : values);
  };
  size_t operand = 0;
  for (const ir::Node* node : trace.nodes) {
    for (size_t i = 0; i < node->operands().size(); ++i) {
      if (!there(trace.operands[operand++])) return false;
    }
    values += static_cast<uint32_t>(node->results().size());
  }
  return std::ranges::all_of(trace.outputs, there);
}

// Layers with one, two or three things changed here or there: equal forms are of equal traces.
TEST(Canonical, TellsApartLayersThatDifferAnywhere) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<uint32_t>(random() % n); };
  std::map<std::string, std::string> plain_of;
  std::set<std::string> plain_forms;
  int read_back = 0;
  for (int i = 0; i < 4000; ++i) {
    Sketch s = Calls(static_cast<int>(4 + below(4)), below(2) != 0, below(2) != 0);
    Trace& trace = s.trace;
    for (uint32_t changes = below(4); changes > 0; --changes) {
      const auto argument = trace.arguments.begin() + below(trace.arguments.size());
      switch (below(6)) {
        case 0: trace.operands[below(trace.operands.size())] = below(2 * static_cast<uint32_t>(trace.arguments.size())); break;
        case 1: std::swap(trace.operands[below(trace.operands.size())], trace.operands[below(trace.operands.size())]); break;
        case 2: std::swap(*argument, trace.arguments[below(trace.arguments.size())]); break;
        case 3: argument->donated_to = static_cast<int32_t>(below(9)) - 1; break;
        case 4: argument->words = below(3); break;
        default: trace.outputs.push_back(1 + below(20));
      }
    }
    const std::string plain = Plainly(trace);
    plain_forms.insert(plain);
    if (i % 8 == 0 && RefersBack(trace)) ExpectReadsBack(trace), ++read_back;
    EXPECT_EQ(plain_of.try_emplace(s.Text(), plain).first->second, plain);
  }
  EXPECT_EQ(plain_of.size(), plain_forms.size());  // and one form each
  EXPECT_GT(read_back, 100);
  EXPECT_GT(plain_forms.size(), 2500u);
}

TEST(Canonical, TellsApartCallsWhoseOperandsDiffer) {
  std::set<std::string> forms = {Calls(3).Text(), Calls(3, true).Text(), Calls(3, false, true).Text(), Calls(4).Text()};
  Sketch twice = Calls(3);
  twice.trace.operands.back() = twice.trace.operands[twice.trace.operands.size() - 4];
  forms.insert(twice.Text());
  Sketch absent = Calls(3);
  absent.trace.operands.back() = Trace::kAbsent;
  forms.insert(absent.Text());
  Sketch first = Calls(3);  // the last call on what the first gives, not the second
  first.trace.operands[22] = Trace::OfValue(0);
  forms.insert(first.Text());
  EXPECT_EQ(forms.size(), 7u);
  EXPECT_EQ(Calls(3).Text(), Calls(3).Text());
}

TEST(BuildModule, MakesAVerifiedFunctionWithRolesAndWords) {
  Sketch s;
  ir::Builder b;
  Value x = Leaf(DType::kF32, {2}), a = Leaf(DType::kF64, {}), c = Leaf(DType::kF32, {});
  auto rx = s.Argument(x);
  auto ra = s.Argument(a, 2);
  auto rc = s.Argument(c, 1);
  s.trace.arguments[0].donated_to = 0;
  Value wide = ops::Convert(b, a, DType::kF32);
  auto rw = s.Node(wide, {ra});
  Value sum = ops::Call(b, ops::kOp_add, {wide, c});
  auto rsum = s.Node(sum, {rw, rc});
  Value y = ops::Call(b, ops::kOp_stop_gradient, {x});
  auto ry = s.Node(y, {rx});
  s.trace.outputs = {ry, rsum};
  const ir::Module module = BuildModule(s.trace);
  EXPECT_TRUE(ir::Verify(module).ok()) << ir::Verify(module);
  EXPECT_EQ(module.argument_words, 3u);
  EXPECT_EQ(module.main().parameter_infos()[0].donated_to, 0);
  EXPECT_EQ(module.main().parameter_infos()[1].word, 0u);
  EXPECT_EQ(module.main().parameter_infos()[2].word, 2u);
}

// Who runs a program is in its key where it is not one process alone, which device each is never.
TEST(Canonical, SaysWhoRunsTheProgramWhereThereAreSeveral) {
  const auto text = [](ir::Participants who) {
    Sketch s = Product(DType::kF32, {4, 4}, false);
    s.trace.participants = std::move(who);
    return s.Text();
  };
  const std::string alone = Product(DType::kF32, {4, 4}, false).Text();
  EXPECT_EQ(text({}), alone);
  EXPECT_EQ(text({.parameters = {{}, {}, {}}, .results = {{}}}), alone);
  const ir::Mesh mesh{.axes = {{"data", 2}, {"model", 2}}, .slots = {}};
  ir::Mesh turned = mesh, renamed = mesh;
  turned.slots = {0, 2, 1, 3};
  renamed.axes[0].name = "batch";
  const ir::Sharding rows{.dimensions = {{.axes = {0}}}}, columns{.dimensions = {{}, {.axes = {0}}}}, both{.dimensions = {{.axes = {0, 1}}}},
      other_way{.dimensions = {{.axes = {1, 0}}}}, open{.dimensions = {{.axes = {0}, .open = true}}};
  std::set<std::string> texts = {alone};
  std::vector<ir::Participants> all = {{.replicas = 4}, {.partitions = 4}, {.replicas = 2, .partitions = 2}};
  for (const ir::Mesh& each : {mesh, turned, renamed}) all.push_back({.partitions = 4, .mesh = each});
  for (const ir::Sharding& each : {rows, columns, both, other_way, open}) {
    all.push_back({.partitions = 4, .mesh = mesh, .parameters = {each, {}, {}}});
    all.push_back({.partitions = 4, .mesh = mesh, .parameters = {{}, each, {}}});
    all.push_back({.partitions = 4, .mesh = mesh, .results = {each}});
  }
  for (const ir::Participants& who : all) {
    EXPECT_TRUE(texts.insert(text(who)).second);
    ir::Participants read;
    ASSERT_TRUE(ReadCanonical(text(who), &read).ok());
    EXPECT_TRUE(read == who);
    EXPECT_FALSE(ReadCanonical(text(who) + "x").ok());
    Sketch s = Product(DType::kF32, {4, 4}, false);
    s.trace.participants = who;
    EXPECT_TRUE(BuildModule(s.trace).participants == who);
  }
  // An assignment of devices is nothing that a key could hold.
  CompileOptions here, there;
  here.assignment = {0, 1, 2, 3};
  there.assignment = {4, 5, 6, 7};
  EXPECT_EQ(KeyText(here), KeyText(there));
}

// Each is of one argument and nothing else.
TEST(Canonical, NumbersThatNoProgramHasAreRefused) {
  const auto form = [](bool donated, const ir::Type& type, std::optional<int64_t> skipped) {
    std::string bytes;
    ir::CodeWriter w(&bytes);
    for (const uint64_t number : {1, 0, donated ? 1 : 0}) w.Number(number);
    w.Type(type);
    if (skipped.has_value()) w.Signed(*skipped);
    w.Number(0);
    w.Number(0);
    return bytes;
  };
  const ir::Type four = ir::Type::Tensor(DType::kF32, {4});
  EXPECT_TRUE(ReadCanonical(form(false, four, {})).ok());
  EXPECT_TRUE(ReadCanonical(form(true, four, 0)).ok());
  for (const int64_t skipped : {INT64_MIN, INT64_MAX, int64_t{-1}, int64_t{1} << 32})
    EXPECT_FALSE(ReadCanonical(form(true, four, skipped)).ok()) << skipped;
  // Bytes that cannot be counted.
  EXPECT_FALSE(ReadCanonical(form(false, ir::Type::Tensor(DType::kF32, {int64_t{1} << 61}), {})).ok());
}

TEST(KeyOf, IsCutToTheBitsAsked) {
  const Key whole = KeyOf("a program");
  EXPECT_NE(whole.high, 0u);
  EXPECT_EQ(KeyOf("a program", 64), (Key{whole.low, 0}));
  EXPECT_EQ(KeyOf("a program", 4), (Key{whole.low & 15, 0}));
  EXPECT_EQ(KeyOf("a program", 96), (Key{whole.low, whole.high & 0xFFFFFFFF}));
}

TEST(BuildId, IsTheLinkersAndStable) {
  EXPECT_EQ(BuildId(), BuildId());
  EXPECT_EQ(BuildId().size(), 40u);
  EXPECT_EQ(BuildId().find_first_not_of("0123456789abcdef"), std::string::npos) << BuildId();
}

}  // namespace
}  // namespace weft::compiler
