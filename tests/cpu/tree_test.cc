// Programs whose lists contain lists: repeats, conditions, branches, carried values; planned, priced, stored, run.
#include <gmock/gmock.h>

#include "src/backends/cpu/executable.h"
#include "src/backends/cpu/lower/lower_region.h"
#include "src/ir/text.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/cpu_under_test.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Type;
using ir::Value;
using testing::HasSubstr;

constexpr DType kF = DType::kF32;
constexpr DType kI = DType::kI32;

HostTensor Numbers(DType dtype, Dims dims, std::vector<double> values) {
  HostTensor t(dtype, std::move(dims));
  for (int64_t i = 0; i < t.count(); ++i) t.SetDouble(i, values[i % values.size()]);
  return t;
}

// A program lowered by hand: a function of some parameters whose results are bound to storages.
class Tree {
 public:
  // Result r is a copy of parameter r's type.
  Tree(const std::vector<Type>& parameters, size_t results) {
    std::vector<Value> values, out;
    for (const Type& type : parameters) values.push_back(test::NewParameter(type));
    Builder b;
    for (size_t r = 0; r < results; ++r) out.push_back(ops::Neg(b, values[r]));
    std::vector<ir::ParameterInfo> infos(parameters.size());
    for (size_t r = 0; r < results; ++r) infos[r].donated_to = static_cast<int32_t>(r);
    module_.functions.push_back(ir::Function::Create("tree", values, out, infos));
    lowering_.emplace(module_, target_, options_);
    EXPECT_TRUE(lowering_->BindParameters().ok());
  }

  Lowering& l() { return *lowering_; }
  StorageId Argument(size_t i) { return l().Of(module_.main().parameters()[i]); }
  void Result(size_t r, StorageId storage) { l().Alias(module_.main().results()[r], storage); }

  // One loop: `out` = f(in), all of one shape and type except as f makes it.
  using Formula = std::function<Value(Builder&, const std::vector<Value>&)>;
  void Apply(const std::vector<std::pair<StorageId, Type>>& in, StorageId out, const Formula& f) {
    Builder b;
    std::vector<Value> parameters;
    std::vector<StorageId> buffers;
    for (const auto& [storage, type] : in) {
      parameters.push_back(test::NewParameter(type));
      buffers.push_back(storage);
    }
    const Value result = f(b, parameters);
    ASSERT_TRUE(b.ok()) << b.status();
    buffers.push_back(out);
    absl::StatusOr<LoopKernel> kernel = LowerRegion(*ir::Function::Create("step", parameters, {result}));
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    l().Loop(*std::move(kernel), buffers);
  }

  const Program& program() {
    if (!lowered_) {
      absl::StatusOr<LoweredModule> lowered = l().Plan();
      EXPECT_TRUE(lowered.ok()) << lowered.status();
      lowered_ = *std::move(lowered);
      EXPECT_TRUE(CheckProgram(lowered_->program).ok()) << CheckProgram(lowered_->program);
    }
    return lowered_->program;
  }
  std::string Bytes() {
    program();
    CodeCache code(target_);
    int64_t compiled = 0;
    const auto loops = code.Compile(*lowered_, {}, 2, nullptr, &compiled);
    EXPECT_TRUE(loops.ok()) << loops.status();
    lowered_->program.fingerprint = code.fingerprint();
    lowered_->program.isa = std::string(target_.name());
    return *EncodeProgram(lowered_->program);
  }
  // Through its bytes, as a second process would.
  std::vector<HostTensor> Run(const std::vector<HostTensor>& arguments) {
    if (!executable_) {
      auto loaded = TestBackend().Load(Bytes());
      EXPECT_TRUE(loaded.ok()) << loaded.status();
      if (!loaded.ok()) return std::vector<HostTensor>(1);
      executable_ = *std::move(loaded);
    }
    auto results = RunExecutable(TestBackend(), *executable_, arguments);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? *results : std::vector<HostTensor>();
  }
  ExecutableStats stats() const { return executable_->stats(); }

 private:
  CpuTarget target_ = test::TargetUnderTest();
  ir::Module module_;
  const ProgramOptions options_;
  std::optional<Lowering> lowering_;
  std::optional<LoweredModule> lowered_;
  std::unique_ptr<Executable> executable_;
};

Value Sum(Builder& b, const std::vector<Value>& v) { return ops::Add(b, v[0], v[1]); }
Value Same(Builder& b, const std::vector<Value>& v) { return ops::Add(b, v[0], ops::FullLike(b, v[0], 0)); }

TEST(Tree, RepeatsInRepeatsOverwriteACarriedValueInPlace) {
  const Type type = Type::Tensor(kF, {100});
  Tree t({type, type}, 1);
  const StorageId sum = t.l().Temporary(400);
  t.Apply({{t.Argument(0), type}}, sum, Same);
  ASSERT_TRUE(t.l().Repeat(3, {}, [&] {
    t.Apply({{sum, type}, {t.Argument(1), type}}, sum, Sum);
    return t.l().Repeat(4, {}, [&] {
      t.Apply({{sum, type}, {t.Argument(1), type}}, sum, Sum);
      return absl::OkStatus();
    });
  }).ok());
  t.Result(0, sum);
  EXPECT_EQ(ToString(t.program()),
            "loop 0 tasks 1: a0 r0\n"
            "repeat 3 times:\n"
            "  loop 1 tasks 1: r0 a1 r0\n"
            "  repeat 4 times:\n"
            "    loop 1 tasks 1: r0 a1 r0\n");
  const auto got = t.Run({Numbers(kF, {100}, {1, 2, 3}), Numbers(kF, {100}, {0.5, -1})});
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0], Numbers(kF, {100}, {1 + 7.5, 2 - 15, 3 + 7.5, 1 - 15, 2 + 7.5, 3 - 15}));
  EXPECT_EQ(t.stats().kernels, 3);
}

// Reversing cannot be done in place: the two halves of a carried pair change places, and odd numbers of runs leave the value
// in the second. The inner repeat begins three times with what it finds.
TEST(Tree, CarriedPairsChangePlaces) {
  for (const int64_t trips : {0, 1, 2, 5}) {
    const Type type = Type::Tensor(kF, {3});
    Tree t({type, type}, 1);
    const Lowering::Carry value = t.l().Carried(12);
    const StorageId out = t.l().Temporary(12);
    t.Apply({{t.Argument(0), type}}, value.now, Same);
    ASSERT_TRUE(t.l().Repeat(3, {}, [&]() -> absl::Status {
      t.Apply({{value.now, type}, {t.Argument(1), type}}, value.now, Sum);
      return t.l().Repeat(trips, std::array{value}, [&] {
        t.Apply({{value.now, type}, {t.Argument(1), type}}, value.next, [](Builder& b, const std::vector<Value>& v) {
          return ops::Add(b, ops::Reverse(b, v[0], {0}), v[1]);
        });
        return absl::OkStatus();
      });
    }).ok());
    t.Apply({{value.now, type}}, out, Same);
    t.Result(0, out);
    std::vector<double> want = {1, 2, 4};
    const std::vector<double> step = {10, 20, 30};
    const auto add = [&] { for (int i = 0; i < 3; ++i) want[i] += step[i]; };
    for (int outer = 0; outer < 3; ++outer) {
      add();
      for (int64_t i = 0; i < trips; ++i) {
        std::swap(want[0], want[2]);
        add();
      }
    }
    for (int launch = 0; launch < 2; ++launch) {
      const auto got = t.Run({Numbers(kF, {3}, {1, 2, 4}), Numbers(kF, {3}, step)});
      ASSERT_EQ(got.size(), 1u);
      EXPECT_EQ(got[0], Numbers(kF, {3}, want)) << trips;
    }
  }
}

TEST(Tree, AConditionIsComputedBeforeEveryRun) {
  const Type scalar = Type::Scalar(kI);
  Tree t({scalar, scalar}, 1);
  const StorageId i = t.l().Temporary(4), flag = t.l().Temporary(1);
  t.Apply({{t.Argument(0), scalar}}, i, Same);
  ASSERT_TRUE(t.l().RepeatWhile(
      flag, {},
      [&] {
        t.Apply({{i, scalar}, {t.Argument(1), scalar}}, flag, [](Builder& b, const std::vector<Value>& v) {
          return ops::Compare(b, ops::Direction::kLt, v[0], v[1]);
        });
        return absl::OkStatus();
      },
      [&] {
        t.Apply({{i, scalar}}, i, [](Builder& b, const std::vector<Value>& v) { return ops::Add(b, v[0], ops::FullLike(b, v[0], 3)); });
        return absl::OkStatus();
      }).ok());
  t.Result(0, i);
  EXPECT_THAT(ToString(t.program()), HasSubstr("repeat: m0\nwhile:\n  loop 1 tasks 1: r0 a1 m0\ndo:\n  loop 2 tasks 1: r0 r0\n"));
  EXPECT_EQ(t.program().donor, std::vector<int32_t>{-1}) << "it may never end";
  EXPECT_EQ(t.Run({Numbers(kI, {}, {0}), Numbers(kI, {}, {1000})})[0], Numbers(kI, {}, {1002}));
  EXPECT_EQ(t.Run({Numbers(kI, {}, {7}), Numbers(kI, {}, {7})})[0], Numbers(kI, {}, {7})) << "no run at all";
}

TEST(Tree, ABranchInARepeatTakesTheCaseOfItsIndex) {
  const Type scalar = Type::Scalar(kI), type = Type::Tensor(kF, {5});
  Tree t({type, scalar}, 1);
  const StorageId x = t.l().Temporary(20), i = t.l().Temporary(4);
  t.Apply({{t.Argument(0), type}}, x, Same);
  t.Apply({{t.Argument(1), scalar}}, i, Same);
  const auto change = [&](double scale, double shift) {
    t.Apply({{x, type}}, x, [=](Builder& b, const std::vector<Value>& v) { return ops::Add(b, ops::Mul(b, v[0], scale), shift); });
    return absl::OkStatus();
  };
  ASSERT_TRUE(t.l().Repeat(4, {}, [&]() -> absl::Status {
    WEFT_RETURN_IF_ERROR(t.l().Branch(i, 3, [&](int c) { return change(c == 1 ? 3 : c == 2 ? -1 : 1, c == 0 ? 1 : 0); }));
    t.Apply({{i, scalar}}, i, [](Builder& b, const std::vector<Value>& v) { return ops::Add(b, v[0], ops::FullLike(b, v[0], 1)); });
    return absl::OkStatus();
  }).ok());
  t.Result(0, x);
  EXPECT_THAT(ToString(t.program()), HasSubstr("  branch: m0\n  case 0:\n    loop 3 tasks 1: r0 r0\n  case 1:\n"));
  // Indices -1 (the last case), 0, 1, 2.
  EXPECT_EQ(t.Run({Numbers(kF, {5}, {2, 10}), Numbers(kI, {}, {-1})})[0], Numbers(kF, {5}, {3, 27, 3, 27, 3}));
  // 2, then 3 to 5: the last case.
  EXPECT_EQ(t.Run({Numbers(kF, {5}, {2, 10}), Numbers(kI, {}, {2})})[0], Numbers(kF, {5}, {2, 10}));
}

// A product (scratch, an epilogue of its own) in a body, on two threads.
TEST(Tree, KernelsOfTheLibraryRunInBodies) {
  const int64_t n = 64;
  const Type type = Type::Tensor(kF, {n, n});
  Tree t({type, type}, 1);
  const Lowering::Carry x = t.l().Carried(n * n * 4);
  const StorageId out = t.l().Temporary(n * n * 4);
  t.Apply({{t.Argument(0), type}}, x.now, Same);
  ASSERT_TRUE(t.l().Repeat(3, std::array{x}, [&]() -> absl::Status {
    Builder b;
    const Value now = test::NewParameter(type), m = test::NewParameter(type);
    t.l().Alias(now, x.now);
    t.l().Alias(m, t.Argument(1));
    const Value product = ops::BatchMatmul(b, now, m, false, false);
    WEFT_RETURN_IF_ERROR(b.status());
    WEFT_RETURN_IF_ERROR(t.l().LowerNode(*product.node));
    t.Apply({{t.l().Of(product), type}}, x.next, [](Builder& b, const std::vector<Value>& v) { return ops::Mul(b, v[0], 0.5); });
    return absl::OkStatus();
  }).ok());
  t.Apply({{x.now, type}}, out, Same);
  t.Result(0, out);
  EXPECT_THAT(ToString(t.program()), HasSubstr("  gemm then loop"));
  HostTensor permutation(kF, {n, n});  // moves every column on
  for (int64_t i = 0; i < n * n; ++i) permutation.SetDouble(i, i % n == (i / n + 1) % n ? 1 : 0);
  HostTensor start(kF, {n, n}), want(kF, {n, n});
  for (int64_t i = 0; i < n * n; ++i) start.SetDouble(i, static_cast<double>(i % 37));
  for (int64_t i = 0; i < n * n; ++i) want.SetDouble(i, static_cast<double>((i / n * n + (i % n + n - 3) % n) % 37) / 8);
  EXPECT_EQ(t.Run({start, permutation})[0], want);
}

// 1 MiB before the repeat, 1 MiB in every case of the branch in it, 1 MiB after it: one MiB serves them all.
TEST(TreePlan, ABodysArenaIsABlockOfItsParents) {
  const int64_t count = 1 << 18;
  const Type type = Type::Tensor(kF, {count}), scalar = Type::Scalar(kI);
  Tree t({type, scalar}, 1);
  const StorageId sum = t.l().Temporary(count * 4);
  const auto detour = [&](StorageId from, StorageId to) {
    const StorageId middle = t.l().Temporary(count * 4);
    t.Apply({{from, type}, {t.Argument(0), type}}, middle, [](Builder& b, const std::vector<Value>& v) { return ops::Add(b, ops::Reverse(b, v[0], {0}), v[1]); });
    t.Apply({{middle, type}, {to == sum && from == sum ? sum : from, type}}, to, [](Builder& b, const std::vector<Value>& v) { return ops::Add(b, ops::Reverse(b, v[0], {0}), v[1]); });
    return absl::OkStatus();
  };
  ASSERT_TRUE(detour(t.Argument(0), sum).ok());
  ASSERT_TRUE(t.l().Repeat(2, {}, [&] { return t.l().Branch(t.Argument(1), 2, [&](int) { return detour(sum, sum); }); }).ok());
  ASSERT_TRUE(detour(sum, sum).ok());
  t.Result(0, sum);
  EXPECT_LT(t.program().arena_bytes, (1 << 20) + 4096) << ToString(t.program());
  EXPECT_GE(t.program().arena_bytes, 1 << 20);
  std::vector<double> want(1, 1);
  // Each detour: d(x) = x + a + x where a is the argument; the first adds twice the argument to itself.
  double value = 1 + 1 + 1;
  for (int i = 0; i < 2; ++i) value = value + 1 + value;
  value = value + 1 + value;
  EXPECT_EQ(t.Run({Numbers(kF, {count}, {1}), Numbers(kI, {}, {0})})[0], Numbers(kF, {count}, {value}));
}

// What is defined outside and used within a body lives for the whole repeat, however early in the body its last use is.
TEST(TreePlan, OuterValuesOutliveTheRepeat) {
  const Type type = Type::Tensor(kF, {1000});
  Tree t({type}, 1);
  const StorageId outer = t.l().Temporary(4000), sum = t.l().Temporary(4000);
  t.Apply({{t.Argument(0), type}}, outer, Same);
  t.Apply({{t.Argument(0), type}}, sum, Same);
  ASSERT_TRUE(t.l().Repeat(3, {}, [&] {
    t.Apply({{sum, type}, {outer, type}}, sum, Sum);
    const StorageId inner = t.l().Temporary(4000);  // would overwrite `outer` if that were dead
    t.Apply({{sum, type}}, inner, [](Builder& b, const std::vector<Value>& v) { return ops::Reverse(b, v[0], {0}); });
    t.Apply({{inner, type}}, sum, [](Builder& b, const std::vector<Value>& v) { return ops::Reverse(b, v[0], {0}); });
    return absl::OkStatus();
  }).ok());
  t.Result(0, sum);
  EXPECT_EQ(t.Run({Numbers(kF, {1000}, {1, 2, 5})})[0], Numbers(kF, {1000}, {4, 8, 20}));
}

TEST(TreePlan, CostsFollowTheTree) {
  const Type type = Type::Tensor(kF, {1000}), scalar = Type::Scalar(kI);
  const auto work = [&](Tree& t, StorageId s, int times) {
    for (int i = 0; i < times; ++i) t.Apply({{s, type}}, s, Same);
    return absl::OkStatus();
  };
  const auto cost = [&](const std::function<void(Tree&, StorageId)>& fill) {
    Tree t({type, scalar}, 1);
    const StorageId s = t.l().Temporary(4000);
    fill(t, s);
    t.Result(0, s);
    return TotalCost(t.program().lists[0]);
  };
  const int64_t once = cost([&](Tree& t, StorageId s) { static_cast<void>(work(t, s, 1)); });
  ASSERT_GT(once, 0);
  EXPECT_EQ(cost([&](Tree& t, StorageId s) { ASSERT_TRUE(t.l().Repeat(1000, {}, [&] { return work(t, s, 2); }).ok()); }), 2000 * once);
  EXPECT_EQ(cost([&](Tree& t, StorageId s) { ASSERT_TRUE(t.l().Branch(t.Argument(1), 3, [&](int c) { return work(t, s, c + 1); }).ok()); }), 3 * once);
  EXPECT_EQ(cost([&](Tree& t, StorageId s) {
              ASSERT_TRUE(t.l().RepeatWhile(t.Argument(1), {}, [] { return absl::OkStatus(); }, [&] { return work(t, s, 1); }).ok());
            }), kMostCost);
  EXPECT_EQ(cost([&](Tree& t, StorageId s) {
              ASSERT_TRUE(t.l().Repeat(int64_t{1} << 62, {}, [&] { return t.l().Repeat(int64_t{1} << 62, {}, [&] { return work(t, s, 1); }); }).ok());
            }), kMostCost);
}

// Two lists deep, a branch, a condition and a carried pair; the shape of everything else does not matter here.
Program Small() {
  Program p;
  p.isa = "portable";
  p.arguments = p.results = {{kF, {4}}};
  p.donor = {-1};
  p.words = 2;
  p.loops = {std::string("key\0with zero", 13)};
  p.host_kernels = {"copy"};
  p.arena_bytes = 4096;
  p.carried = {64, 128};
  p.constants = "constant";
  p.origins = {{"add", "model.py:42"}, {"dot_general", ""}};
  Entry copy;
  copy.type = Entry::Type::kHost;
  copy.buffers = {{BufferRef::Place::kArgument, 0, 0}, {BufferRef::Place::kCarried, 1, 0}};
  copy.params = {16};
  copy.origins = {0, 1};
  Entry repeat;
  repeat.type = Entry::Type::kRepeat;
  repeat.buffers = {{BufferRef::Place::kArena, 0, 0}, {BufferRef::Place::kCarried, 0, 0}, {BufferRef::Place::kCarried, 1, 0}};
  Entry branch;
  branch.type = Entry::Type::kBranch;
  branch.code = 1;
  branch.buffers = {{BufferRef::Place::kWords, 0, 4}};
  p.controls = {{{1, 2}, -1}, {{3, 4}, -1}};
  p.lists = {{copy, repeat}, {copy}, {branch, copy}, {copy}, {}};
  auto object = std::make_shared<CodeObject>();
  object->bytes = "machine code";
  object->keys = p.loops;
  object->symbols = {"loop_0"};
  p.objects = {object};
  p.micro_kernels = "tiles";
  return p;
}

TEST(TreeBytes, ComeBackAsTheyWereButForPositions) {
  const Program before = Small();
  const std::string bytes = *EncodeProgram(before);
  const auto after = ParseProgram(bytes);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(*EncodeProgram(*after), bytes);
  EXPECT_EQ(ToString(before),
            "copy: a0 v1; add (model.py:42), dot_general\n"
            "repeat: m0 v0 v1\n"
            "while:\n"
            "  copy: a0 v1; add (model.py:42), dot_general\n"
            "do:\n"
            "  branch: w4\n"
            "  case 0:\n"
            "    copy: a0 v1; add (model.py:42), dot_general\n"
            "  case 1:\n"
            "  copy: a0 v1; add (model.py:42), dot_general\n");
  EXPECT_THAT(ToString(*after), HasSubstr("copy: a0 v1; add, dot_general\n"));
  EXPECT_EQ(bytes.find("model.py"), std::string::npos);
  EXPECT_EQ(after->loops, before.loops);
  EXPECT_EQ(after->arguments[0].dims, before.arguments[0].dims);
  EXPECT_EQ(after->constants, before.constants);
  EXPECT_EQ(after->objects[0]->bytes, before.objects[0]->bytes);
  EXPECT_EQ(after->micro_kernels, before.micro_kernels);
}

TEST(TreeBytes, ListsThatAreNoTreeAreRefused) {
  const std::vector<std::pair<std::string, std::function<void(Program&)>>> cases = {
      {"no list of entries", [](Program& p) { p.lists.clear(); }},
      {"a list that nothing runs", [](Program& p) { p.lists.emplace_back(); }},
      {"lists that are no tree", [](Program& p) { p.controls[0].lists[1] = 1; }},
      {"lists that are no tree", [](Program& p) { p.controls[1].lists[1] = 2; }},
      {"lists that are no tree", [](Program& p) { p.controls[0].lists[0] = 0; }},
      {"lists that are no tree", [](Program& p) { p.controls[1].lists[0] = 9; }},
      {"two entries with the same lists", [](Program& p) { p.lists[4].push_back(p.lists[2][0]); }},
      {"lists without an entry", [](Program& p) { p.controls.push_back({{}, 3}); }},
      {"an entry without lists", [](Program& p) { p.lists[2][0].code = 2; }},
      {"an unknown kind of entry", [](Program& p) { p.lists[2][0].type = static_cast<Entry::Type>(4); }},
      {"an impossible branch", [](Program& p) { p.lists[2][0].buffers[0].offset = 5; }},
      {"an impossible branch", [](Program& p) { p.lists[2][0].buffers.clear(); }},
      {"an impossible repeat", [](Program& p) { p.controls[0].trips = 3; }},
      {"an impossible repeat", [](Program& p) { p.lists[0][1].buffers.pop_back(); }},
      {"an impossible repeat", [](Program& p) { p.lists[0][1].buffers[0].offset = 4096; }},
      {"a repeat of what is not carried", [](Program& p) { p.lists[0][1].buffers[2] = {BufferRef::Place::kArena, 0, 0}; }},
      {"an entry refers to memory outside the plan", [](Program& p) { p.lists[0][1].buffers[2].index = 2; }},
      {"a carried value outside the arena", [](Program& p) { p.carried[1] = 5000; }},
      {"a donation to what may never end",
       [](Program& p) {
         p.donor[0] = 0;
         p.lists[3][0].buffers[1] = {BufferRef::Place::kResult, 0, 0};
       }},
      {"a donation to what may never end",
       [](Program& p) {
         p.donor[0] = 0;
         p.lists[0][0].buffers[1] = {BufferRef::Place::kResult, 0, 0};
       }},
      {"an entry from nowhere", [](Program& p) { p.lists[3][0].origins = {2}; }},
      {"lists in too many lists", [](Program& p) {
         for (int i = 0; i < 40; ++i) {
           Entry repeat;
           repeat.type = Entry::Type::kRepeat;
           repeat.code = static_cast<uint32_t>(p.controls.size());
           p.controls.push_back({{static_cast<uint32_t>(p.lists.size())}, 1});
           p.lists.back().push_back(repeat);
           p.lists.emplace_back();
         }
       }},
  };
  EXPECT_TRUE(CheckProgram(Small()).ok()) << CheckProgram(Small());
  // What is first written behind the loop may be taken over.
  Program behind = Small();
  behind.donor[0] = 0;
  behind.lists[0].push_back(behind.lists[0][0]);
  behind.lists[0].back().buffers[1] = {BufferRef::Place::kResult, 0, 0};
  EXPECT_TRUE(CheckProgram(behind).ok()) << CheckProgram(behind);
  for (const auto& [message, damage] : cases) {
    Program p = Small();
    damage(p);
    EXPECT_EQ(CheckProgram(p).message(), "compiled program is damaged: " + message);
    EXPECT_EQ(ParseProgram(*EncodeProgram(p)).status().code(), absl::StatusCode::kDataLoss) << message;
  }
}

// Entries name their nodes where they were recorded; the bytes are the same from anywhere, as the cache's key is.
TEST(TreeBytes, NameNodesButNotWhereTheyWereRecorded) {
  std::vector<std::string> bytes;
  const struct {
    std::string_view file;
    uint32_t next;  // lines from one statement to the next
    std::string_view text;
  } recordings[] = {
      {"model.py", 1, "; dot_general (model.py:7), tanh (model.py:8), add (model.py:8), add (model.py:9), tanh (model.py:9)\n"},
      {"elsewhere.py", 0, "; dot_general (elsewhere.py:7), tanh (elsewhere.py:7), add (elsewhere.py:7)\n"}};
  for (const auto& [file, next, expected] : recordings) {
    Builder b(ir::Location{ir::InternFile(file), 7});
    const Type type = Type::Tensor(kF, {64, 64});
    const Value x = test::NewParameter(type), w = test::NewParameter(type);
    const Value product = ops::BatchMatmul(b, x, w, false, false);
    b.set_location({ir::InternFile(file), 7 + next});
    const Value t = ops::Tanh(b, x);
    const Value sum = ops::Add(b, product, x);
    b.set_location({ir::InternFile(file), 7 + 2 * next});
    const Value y = ops::Tanh(b, ops::Add(b, sum, t));
    ASSERT_TRUE(b.ok()) << b.status();
    auto backend = test::NewCpuBackend({.threads = 1});
    const auto module = Prepared(**backend, ir::Function::Create("f", {x, w}, {y}));
    ASSERT_TRUE(module.ok()) << module.status();
    const auto text = (*backend)->CodeText(*module, {}, CodeForm::kLoops);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_THAT(*text, HasSubstr(expected));
    auto compiled = (*backend)->Compile(*module, {});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    bytes.push_back(*(*compiled)->Serialize());
    EXPECT_EQ(bytes.back().find(".py"), std::string::npos);
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

// A loop of so many runs that writes a row of what it carries in each.
std::string RowsOf(const std::string& runs) {
  return "func @main(%0: tensor<4xf32>, %1: tensor<3x4xf32>) -> (tensor<3x4xf32>) {\n"
         "  %2 = constant() {value = dense tensor<i32> [0]} : tensor<i32>\n"
         "  %3 = constant() {value = dense tensor<i32> [" + runs + "]} : tensor<i32>\n"
         "  %4:2 = while(%2, %1, %3, %0) regions {\n"
         "    func @condition(%0: tensor<i32>, %1: tensor<3x4xf32>, %2: tensor<i32>) -> (tensor<i1>) {\n"
         "      %3 = compare(%0, %2) {direction = lt} : tensor<i1>\n"
         "      return %3\n"
         "    }\n"
         "    func @body(%0: tensor<i32>, %1: tensor<3x4xf32>, %2: tensor<4xf32>) -> (tensor<i32>, tensor<3x4xf32>) {\n"
         "      %3 = constant() {value = dense tensor<i32> [1]} : tensor<i32>\n"
         "      %4 = add(%0, %3) : tensor<i32>\n"
         "      %5 = constant() {value = dense tensor<i32> [0]} : tensor<i32>\n"
         "      %6 = reshape(%2) {shape = [1, 4]} : tensor<1x4xf32>\n"
         "      %7 = dynamic_update_slice(%1, %6, %0, %5) : tensor<3x4xf32>\n"
         "      return %4, %7\n"
         "    }\n"
         "  } : tensor<i32>, tensor<3x4xf32>\n"
         "  return %4#1\n"
         "}\n";
}

TEST(Carries, WhatAllRunsTogetherOverwriteIsNotCopiedFirst) {
  const std::vector<HostTensor> arguments = {Numbers(kF, {4}, {1, 2, 3, 4}), Numbers(kF, {3, 4}, {7})};
  for (const int runs : {3, 2}) {
    const auto parsed = ir::Parse(RowsOf(std::to_string(runs)), ops::FindOp);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    auto backend = test::NewCpuBackend({.threads = 1});
    const auto module = Prepared(**backend, parsed->functions[0]);
    ASSERT_TRUE(module.ok()) << module.status();
    const auto text = (*backend)->CodeText(*module, {}, CodeForm::kLoops);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->find("copy: a1") == std::string::npos, runs == 3) << *text;
    const auto results = RunOnCpu(**backend, parsed->functions[0], arguments);
    ASSERT_TRUE(results.ok()) << results.status();
    HostTensor expected = Numbers(kF, {3, 4}, {1, 2, 3, 4});
    for (int i = 4 * runs; i < 12; ++i) expected.SetDouble(i, 7);
    EXPECT_EQ((*results)[0], expected);
  }
}

// A launch's scratch gives no memory where none was asked for.
TEST(Launches, OfAPaddedConvolutionOverNoPixels) {
  const auto parsed = ir::Parse(
      "func @main(%0: tensor<1x3x0x2xf32>, %1: tensor<3x1x2x33xf32>) -> (tensor<1x3x0x33xf32>) {\n"
      "  %2 = convolution(%0, %1) {window_strides = [1, 1], padding = [1, 1, 0, 0], lhs_dilation = [1, 1], rhs_dilation = [1, 1], "
      "input_dimensions = [0, 3, 1, 2], kernel_dimensions = [2, 3, 0, 1], output_dimensions = [0, 3, 1, 2], feature_group_count = 1, "
      "batch_group_count = 1} : tensor<1x3x0x33xf32>\n"
      "  return %2\n"
      "}\n",
      ops::FindOp);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const std::vector<HostTensor> arguments = {HostTensor(kF, {1, 3, 0, 2}), Numbers(kF, {3, 1, 2, 33}, {1, 2, 3})};
  auto backend = test::NewCpuBackend({.threads = 2});
  const auto results = RunOnCpu(**backend, parsed->functions[0], arguments);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].dims(), (Dims{1, 3, 0, 33}));
}

}  // namespace
}  // namespace weft::cpu
