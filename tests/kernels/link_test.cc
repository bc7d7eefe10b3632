// Objects in memory: what code of ours may have works, everything else is refused without a byte written elsewhere.
#include <cmath>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/backends/cpu/jit/jit_llvm.h"

namespace weft::cpu {
namespace {

// float call(float x): imported(x) + 1.25; pointer(): the address of `imported`; float* constants(): a table with a pointer
// to itself behind it; int local(): what a function of the object gives.
absl::StatusOr<std::string> ObjectThatCalls(const std::string& imported) {
  auto module = std::make_unique<JitModule>("test");
  llvm::LLVMContext& context = *module->context;
  llvm::Module& ir = *module->module;
  llvm::IRBuilder<> b(context);
  llvm::Type* const f32 = b.getFloatTy();
  const auto function = [&](const char* name, llvm::Type* result, std::vector<llvm::Type*> arguments) {
    auto* const made = llvm::Function::Create(llvm::FunctionType::get(result, arguments, false),
                                              llvm::GlobalValue::ExternalLinkage, name, ir);
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", made));
    return made;
  };
  llvm::FunctionCallee other = ir.getOrInsertFunction(imported, f32, f32);
  llvm::Function* const call = function("call", f32, {f32});
  b.CreateRet(b.CreateFAdd(b.CreateCall(other, {call->getArg(0)}), llvm::ConstantFP::get(f32, 1.25)));
  function("pointer", b.getPtrTy(), {});
  b.CreateRet(other.getCallee());
  llvm::StructType* const type = llvm::StructType::get(context, {f32, b.getPtrTy()});
  auto* const table = new llvm::GlobalVariable(ir, type, true, llvm::GlobalValue::PrivateLinkage, nullptr, "table");
  table->setInitializer(llvm::ConstantStruct::get(type, {llvm::ConstantFP::get(f32, 2.5), table}));
  function("constants", b.getPtrTy(), {});
  b.CreateRet(table);
  llvm::Function* const seven = function("seven", b.getInt32Ty(), {});
  seven->addFnAttr(llvm::Attribute::NoInline);
  b.CreateRet(b.getInt32(7));
  function("local", b.getInt32Ty(), {});
  b.CreateRet(b.CreateAdd(b.CreateCall(seven), b.getInt32(1)));
  return Jit(*TargetFromName("auto")).Compile(std::move(module));
}

// "r-x" of the mapping that the address lies in.
std::string ProtectionOf(const void* address) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    uint64_t begin = 0, end = 0;
    char protection[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, protection) != 3) continue;
    if (begin <= reinterpret_cast<uint64_t>(address) && reinterpret_cast<uint64_t>(address) < end) return std::string(protection, 3);
  }
  return "";
}

TEST(Link, CallsImportsAndFindsItsConstants) {
  const auto object = ObjectThatCalls("sinf");
  ASSERT_TRUE(object.ok()) << object.status();
  const auto library = Jit::Load(*object);
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ((*(*library)->Function<float(float)>("call"))(0.5f), ::sinf(0.5f) + 1.25f);
  float (*const pointer)(float) = (*(*library)->Function<float (*())(float)>("pointer"))();
  EXPECT_EQ(pointer(0.25f), ::sinf(0.25f));
  struct Table {
    float value;
    const Table* self;
  };
  const Table* const table = (*(*library)->Function<const Table*()>("constants"))();
  EXPECT_EQ(table->value, 2.5f);
  EXPECT_EQ(table->self, table);
  EXPECT_EQ((*(*library)->Function<int()>("local"))(), 8);
  EXPECT_EQ((*library)->Lookup("nobody").status().message(), "compiled object has no function 'nobody'");
}

TEST(Link, LeavesNothingWritable) {
  const auto object = ObjectThatCalls("sinf");
  ASSERT_TRUE(object.ok());
  auto library = Jit::Load(*object);
  ASSERT_TRUE(library.ok());
  void* const code = *(*library)->Lookup("call");
  EXPECT_EQ(ProtectionOf(code), "r-x");
  EXPECT_EQ(ProtectionOf((*(*library)->Function<const void*()>("constants"))()), "r--");
  library->reset();
  EXPECT_NE(ProtectionOf(code), "r-x");
}

TEST(Link, RefusesImportsThatNobodyOffers) {
  const auto object = ObjectThatCalls("system");
  ASSERT_TRUE(object.ok());
  const absl::Status status = Jit::Load(*object).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "compiled object cannot be read: it wants the unknown function 'system'");
}

TEST(Link, RefusesWhatIsCutOrDamaged) {
  const auto whole = ObjectThatCalls("sinf");
  ASSERT_TRUE(whole.ok());
  for (size_t length = 0; length < whole->size(); ++length) {
    const absl::Status status = Jit::Load(whole->substr(0, length)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << length << ": " << status;
  }
  // What is not refused stays within its own memory, which is all that can be said of it: nothing in it is called.
  const uint64_t seed = 11;
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = *whole;
    for (int k = 0; k < 1 + i % 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto library = Jit::Load(damaged);
    if (library.ok()) continue;
    ++refused;
    EXPECT_TRUE(absl::IsDataLoss(library.status()) || absl::IsResourceExhausted(library.status())) << library.status();
  }
  EXPECT_GT(refused, 1'000) << "seed " << seed;
}

}  // namespace
}  // namespace weft::cpu
