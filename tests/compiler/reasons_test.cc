// Why a program is another one: the cause is named, of each kind, and in random programs with one thing changed.
#include "src/compiler/reasons.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "src/compiler/canonical.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"

namespace weft::compiler {
namespace {

using ir::Value;

// One operation of a program that is written down. Operands are numbers: arguments first, then operations in their order.
struct Entry {
  enum Kind { kAdd, kMul, kTanh, kTranspose, kConstant } kind = kAdd;
  size_t a = 0, b = 0;
  double value = 0;   // of a constant
  bool turned = true;  // of a transpose
  uint32_t line = 0;
};
struct Sketch {
  std::vector<DType> arguments;
  std::vector<bool> taken_over;
  std::vector<Entry> entries;
  std::vector<size_t> wanted;  // entries whose results are wanted though others use them

  size_t values() const { return arguments.size() + entries.size(); }
};

// The trace of what nobody uses and what is wanted, depth first as cuts are; keeps its nodes.
class Recorded {
 public:
  explicit Recorded(const Sketch& sketch) {
    const uint32_t file = ir::InternFile("sketch.c");
    for (const DType dtype : sketch.arguments) {
      values_.push_back({ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(dtype, {4, 4})}), 0});
    }
    std::vector<bool> used(sketch.values());
    for (const Entry& entry : sketch.entries) {
      ir::Builder b(ir::Location{file, entry.line});
      switch (entry.kind) {
        case Entry::kAdd: values_.push_back(ops::Call(b, ops::kOp_add, {values_[entry.a], values_[entry.b]})); break;
        case Entry::kMul: values_.push_back(ops::Call(b, ops::kOp_mul, {values_[entry.a], values_[entry.b]})); break;
        case Entry::kTanh: values_.push_back(ops::Call(b, ops::kOp_tanh, {values_[entry.a]})); break;
        case Entry::kTranspose: {
          const ir::Ints order = entry.turned ? ir::Ints{1, 0} : ir::Ints{0, 1};
          values_.push_back(ops::Call(b, ops::kOp_transpose, {values_[entry.a]}, {order}));
          break;
        }
        case Entry::kConstant: {
          HostTensor literal(DType::kF32, {4, 4});
          for (int64_t i = 0; i < 16; ++i) literal.SetDouble(i, entry.value);
          values_.push_back(ops::Call(b, ops::kOp_constant, {}, {Ref<const Literal>(MakeRef<Literal>(literal))}));
          break;
        }
      }
      EXPECT_TRUE(b.ok()) << b.status();
      if (entry.kind != Entry::kConstant) used[entry.a] = true;
      if (entry.kind == Entry::kAdd || entry.kind == Entry::kMul) used[entry.b] = true;
    }
    for (size_t i = sketch.arguments.size(); i < sketch.values(); ++i) {
      if (!used[i] || std::ranges::count(sketch.wanted, i - sketch.arguments.size()) > 0) Output(values_[i], sketch);
    }
  }
  const Trace& trace() const { return trace_; }
  std::string canonical() const {
    std::string bytes;
    AppendCanonical(trace_, &bytes);
    return bytes;
  }
  Outline outline() const {
    std::string bytes;
    PassedNodes nodes;
    AppendCanonical(trace_, &bytes, &nodes);
    return OutlineOf(trace_, bytes, nodes);
  }

 private:
  Trace::Reference Visit(const Value& value, const Sketch& sketch) {
    const ir::Node* const node = value.node.get();
    if (const auto known = known_.find(node); known != known_.end()) return known->second;
    if (&node->op() == &ops::kOp_parameter) {
      const auto at = static_cast<size_t>(std::ranges::find(values_, value) - values_.begin());
      trace_.arguments.push_back({node, 0, 0, sketch.taken_over[at] ? 0 : -1});
      return known_[node] = Trace::OfArgument(static_cast<uint32_t>(trace_.arguments.size() - 1));
    }
    std::vector<Trace::Reference> operands;
    for (const Value& operand : node->operands()) operands.push_back(Visit(operand, sketch));
    trace_.nodes.push_back(node);
    trace_.operands.insert(trace_.operands.end(), operands.begin(), operands.end());
    return known_[node] = Trace::OfValue(trace_.values++);
  }
  void Output(const Value& value, const Sketch& sketch) { trace_.outputs.push_back(Visit(value, sketch)); }

  std::vector<Value> values_;
  std::map<const ir::Node*, Trace::Reference> known_;
  Trace trace_;
};

Sketch Random(std::mt19937& random, size_t count) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Sketch sketch;
  sketch.arguments.assign(3, DType::kF32);
  sketch.taken_over.assign(3, false);
  for (size_t i = 0; i < count; ++i) {
    const size_t there = sketch.values();
    const size_t roll = below(10);
    const auto kind = roll < 3 ? Entry::kAdd : roll < 6 ? Entry::kMul : roll < 7 ? Entry::kTanh : roll < 8 ? Entry::kTranspose : Entry::kConstant;
    const size_t near = there - std::min<size_t>(there, 12);
    sketch.entries.push_back({kind, near + below(there - near), below(there), 1.5 + static_cast<double>(i), true, static_cast<uint32_t>(i + 1)});
  }
  // All arguments are used.
  for (size_t i = 0; i < 3; ++i) sketch.entries[i] = {Entry::kAdd, i, i == 0 ? 0 : 2 + i, 0, true, static_cast<uint32_t>(i + 1)};
  return sketch;
}

// A network: layers of a product with a parameter, a residual sum, an activation and a transposition; a literal in every tenth.
Sketch Layers(size_t count) {
  Sketch sketch;
  sketch.arguments.assign(count / 50, DType::kF32);
  sketch.taken_over.assign(sketch.arguments.size(), false);
  for (size_t i = 0; i < count; ++i) {
    const size_t last = sketch.values() - 1, layer = i / 4;
    const auto line = static_cast<uint32_t>(i + 1);
    switch (i % 4) {
      case 0: sketch.entries.push_back({Entry::kMul, last, layer % sketch.arguments.size(), 0, true, line}); break;
      case 1: sketch.entries.push_back({Entry::kAdd, last, i < 8 ? 0 : last - 5, 0, true, line}); break;
      case 2: sketch.entries.push_back({Entry::kTanh, last, 0, 0, true, line}); break;
      default:
        if (layer % 10 == 9) {
          sketch.entries.push_back({Entry::kConstant, 0, 0, 1.5 + static_cast<double>(i), true, line});
        } else {
          sketch.entries.push_back({Entry::kTranspose, last, 0, 0, true, line});
        }
    }
  }
  return sketch;
}

struct Changed {
  Sketch sketch;
  Reason reason;
  uint32_t line;
};

Changed Change(const Sketch& sketch, std::mt19937& random) {
  Changed changed{sketch, Reason::kFirst, 0};
  std::vector<Entry>& entries = changed.sketch.entries;
  const auto find = [&](Entry::Kind kind) {
    std::vector<size_t> all;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].kind == kind) all.push_back(i);
    }
    return all.empty() ? SIZE_MAX : all[random() % all.size()];
  };
  const size_t some = 3 + random() % (entries.size() - 3);
  const size_t base = sketch.arguments.size();
  switch (random() % 6) {
    case 0:
      if (const size_t i = find(Entry::kConstant); i != SIZE_MAX) {
        entries[i].value += 0.25;
        return {changed.sketch, Reason::kConstant, entries[i].line};
      }
      [[fallthrough]];
    case 1:
      if (const size_t i = find(Entry::kTranspose); i != SIZE_MAX) {
        entries[i].turned = false;
        return {changed.sketch, Reason::kAttribute, entries[i].line};
      }
      [[fallthrough]];
    case 2: {  // one more operation, which what came after uses
      for (Entry& entry : entries) {
        if (entry.line <= entries[some].line) continue;
        if (entry.a >= base + some) ++entry.a;
        if (entry.b >= base + some) ++entry.b;
      }
      Entry more{Entry::kTanh, base + some, 0, 0, true, 1000};
      // What reads the operation at `some` reads the new one: numbers from there on have moved by one already.
      entries.insert(entries.begin() + static_cast<ptrdiff_t>(some) + 1, more);
      return {changed.sketch, Reason::kOperations, 1000};
    }
    case 3: {  // another operation in its place
      Entry& entry = entries[some];
      const bool binary = entry.kind == Entry::kAdd || entry.kind == Entry::kMul;
      entry.kind = binary ? (entry.kind == Entry::kAdd ? Entry::kMul : Entry::kAdd) : Entry::kAdd;
      return {changed.sketch, Reason::kOperations, entry.line};
    }
    case 4:
      changed.sketch.wanted.push_back(some);
      return {changed.sketch, Reason::kOutputs, entries[some].line};
    default:
      changed.sketch.taken_over[0] = true;
      return {changed.sketch, Reason::kTakenOver, entries[0].line};
  }
}

TEST(Reasons, RandomChangesAreNamedWithTheirLine) {
  int asked = 0, named = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const Sketch sketch = Random(random, 12 + seed % 50);
    const Changed changed = Change(sketch, random);
    const Recorded before(sketch), now(changed.sketch);
    if (before.canonical() == now.canonical()) continue;  // the output was one already
    ++asked;
    const Outline was = before.outline(), is = now.outline();
    const std::optional<Difference> found = Compare(was, is);
    ASSERT_TRUE(found.has_value()) << seed;
    // Never a line that is in neither.
    EXPECT_TRUE(found->at.line == 1000 || found->at.line <= sketch.entries.size()) << seed;
    const bool right = found->reason == changed.reason && found->at.line == changed.line;
    named += right ? 1 : 0;
    if (!right) {
      std::printf("seed %u: %s at %u, not %s at %u: %s\n", seed, std::string(NameOf(found->reason)).c_str(), found->at.line,
                  std::string(NameOf(changed.reason)).c_str(), changed.line,
                  TextOf(*found, was, before.canonical(), is, now.canonical()).c_str());
    }
  }
  EXPECT_GE(asked, 200);
  EXPECT_GE(named * 100, asked * 95) << named << " of " << asked;
}

TEST(Reasons, TextsSayOldAndNew) {
  Sketch sketch;
  sketch.arguments = {DType::kF32};
  sketch.taken_over = {false};
  sketch.entries = {{Entry::kConstant, 0, 0, 1.1, true, 9}, {Entry::kMul, 0, 1, 0, true, 10}, {Entry::kTanh, 2, 0, 0, true, 11},
                    {Entry::kTranspose, 3, 0, 0, true, 12}};
  const Recorded before(sketch);
  const auto text = [&](const std::function<void(Sketch&)>& change) {
    Sketch other = sketch;
    change(other);
    const Recorded now(other);
    const Outline was = before.outline(), is = now.outline();
    const std::optional<Difference> found = Compare(was, is);
    return found ? TextOf(*found, was, before.canonical(), is, now.canonical()) : "nothing";
  };
  EXPECT_EQ(text([](Sketch& s) { s.entries[0].value = 1.2; }), "constant at sketch.c:9 is 1.2, was 1.1; all else equal (4 nodes)");
  EXPECT_EQ(text([](Sketch& s) { s.entries[3].turned = false; }), "permutation of transpose at sketch.c:12 is [0, 1], was [1, 0]; all else equal (4 nodes)");
  EXPECT_EQ(text([](Sketch& s) { s.wanted = {1}; }), "the result of mul at sketch.c:10 is wanted, too: its handle lives on; all else equal (4 nodes)");
  EXPECT_EQ(text([](Sketch& s) { s.taken_over = {true}; }), "operand 0 of mul at sketch.c:10 (f32[4, 4]) can be taken over now; all else equal (4 nodes)");
  EXPECT_EQ(text([](Sketch& s) { s.entries.push_back({Entry::kTanh, 4, 0, 0, true, 13}); }), "tanh at sketch.c:13 is new (of 5 nodes)");
  EXPECT_EQ(text([](Sketch& s) { s.entries.pop_back(); }), "transpose, which was at sketch.c:12, is gone (of 3 nodes)");
  EXPECT_EQ(text([](Sketch& s) { s.entries = {{Entry::kTranspose, 0, 0, 0, true, 1}}; }), "nothing");
}

// The reader and the writer of outlines' bytes: a difference of a program with itself is none in nodes or arguments.
TEST(Reasons, EqualProgramsDifferInNothing) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const Sketch sketch = Random(random, 30);
    const Recorded one(sketch), other(sketch);
    EXPECT_EQ(one.canonical(), other.canonical());
    const std::optional<Difference> found = Compare(one.outline(), other.outline());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->edits, 0u) << seed;
  }
}

// The least of 15 times in microseconds of the thread's own time: whatever else runs here counts for nothing, nor does what only the
// first has.
struct Took {
  int64_t hashed = INT64_MAX, compared = INT64_MAX, told = INT64_MAX;
  std::string text;
};

Took Explained(const Sketch& before, const Sketch& after) {
  const Recorded old(before), now(after);
  const Outline was = old.outline();
  const std::string canonical_before = old.canonical();
  std::string canonical;
  PassedNodes nodes;
  AppendCanonical(now.trace(), &canonical, &nodes);
  const auto now_us = [] {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<int64_t>(t.tv_sec) * 1'000'000 + t.tv_nsec / 1000;
  };
  Took took;
  for (int i = 0; i < 15; ++i) {
    const int64_t start = now_us();
    const Outline is = OutlineOf(now.trace(), canonical, nodes);
    const int64_t outlined = now_us();
    const std::optional<Difference> found = Compare(was, is);
    const int64_t known = now_us();
    if (!found.has_value()) return took;
    took.text = TextOf(*found, was, canonical_before, is, canonical);
    const int64_t end = now_us();
    took.hashed = std::min(took.hashed, outlined - start);
    took.compared = std::min(took.compared, known - outlined);
    took.told = std::min(took.told, end - known);
  }
  return took;
}

TEST(Reasons, LongProgramsAreComparedInNoTime) {
  std::mt19937 random(7);
  const std::pair<const char*, Sketch> programs[] = {{"a network", Layers(20'000)}, {"random, a third literals", Random(random, 20'000)}};
  for (const auto& [name, sketch] : programs) {
    SCOPED_TRACE(name);
    Sketch other = sketch;
    const auto constant = std::ranges::find(other.entries.begin() + 10'000, other.entries.end(), Entry::kConstant, &Entry::kind);
    constant->value += 1;
    const Took took = Explained(sketch, other);
    EXPECT_NE(took.text.find("constant at sketch.c:" + std::to_string(constant->line) + " is "), std::string::npos) << took.text;
    std::printf("20,000 nodes, %s: %lld us to hash, %lld us to compare, %lld us to tell\n", name, static_cast<long long>(took.hashed),
                static_cast<long long>(took.compared), static_cast<long long>(took.told));
    // Bounds for any machine and build; reading a whole program back would take 7 ms, two 14.
    EXPECT_LT(took.hashed + took.compared, 50'000);
    EXPECT_LT(took.told, 3'000);
  }
}

}  // namespace
}  // namespace weft::compiler
