// The table of generated tiles: compile on first use, export and import as bytes.
#include "src/backends/cpu/kernels/kernels.h"

#include <cstring>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"
#include "src/runtime/integer_sums.h"
#include "src/runtime/memory_reserve.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// Export format: magic, count, then per object its tile index, length and bytes. Lives inside a cache entry, which has
// checksums and the fingerprint of the target; this header only refuses what is not ours at all.
constexpr uint64_t kObjectsMagic = 0x316F726369746665ull;

template <typename T>
void Put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Tiles that MissingAfter has found so far on this thread.
thread_local std::set<int>* missing = nullptr;
void NotThere(const MicroArgs*) {}

absl::Status Truncated() {
  return UserErrorOf(absl::StatusCode::kDataLoss, "compiled kernels are truncated or not Weft's");
}

}  // namespace

namespace {

bool PlanIntegers(const CpuTarget& target, DType input, DType output, TypePlan* plan) {
  const int bits = BitsOf(input);
  if (input == output && (bits == 32 || bits == 64)) {
    plan->micro = bits == 32 ? MicroType::kI32 : MicroType::kI64;
    plan->pack = bits == 32 ? PackKind::kF32 : PackKind::kF64;
    plan->source_bytes = plan->accumulator_bytes = bits / 8;
    return true;
  }
  if (!SumsInI32(input) || output != DType::kI32) return false;
  plan->micro = MicroType::kI16Dot;
  plan->pack = bits == 16 ? PackKind::kPairs : IsSigned(input) ? PackKind::kPairsI8 : PackKind::kPairsU8;
  plan->source_bytes = bits / 8;
  plan->direct = false;
  if (bits == 8 && target.has_byte_dot) {
    plan->micro = IsSigned(input) ? MicroType::kI8Dot : MicroType::kU8Dot;
    plan->pack = IsSigned(input) ? PackKind::kQuadsI8 : PackKind::kQuadsU8;
  }
  return true;
}

}  // namespace

bool PlanTypes(const CpuTarget& target, DType input, DType output, TypePlan* plan) {
  const bool half = input == DType::kBF16 || input == DType::kF16;
  if (half) {
    if (output != DType::kF32 && output != input) return false;
    plan->narrow = output != DType::kF32;
    plan->source_bytes = 2;
    plan->direct = false;
    if (input == DType::kBF16 && target.has_bf16_dot) {
      plan->micro = MicroType::kBF16Dot;
      plan->pack = PackKind::kPairs;
    } else {
      plan->pack = input == DType::kBF16 ? PackKind::kWidenBF16 : PackKind::kWidenF16;
    }
    return true;
  }
  if (IsInteger(input)) return PlanIntegers(target, input, output, plan);
  if (input != output) return false;
  if (input == DType::kF32) return true;
  if (input != DType::kF64) return false;
  plan->micro = MicroType::kF64;
  plan->pack = PackKind::kF64;
  plan->source_bytes = plan->accumulator_bytes = 8;
  return true;
}

absl::StatusOr<MicroFn*> KernelSet::State::Micro(const MicroSpec& spec) {
  const int index = spec.Index();
  if (MicroFn* fn = micro[index].load(std::memory_order_acquire)) return fn;
  if (missing != nullptr) {
    missing->insert(index);
    return &NotThere;
  }
  std::string object;
  {
    MutexLock lock(mutex);
    if (const auto imported = objects.find(index); imported != objects.end()) object = imported->second;
  }
  if (!object.empty()) {
    absl::StatusOr<MicroFn*> fn = Keep(spec, std::move(object));
    if (!absl::IsDataLoss(fn.status()) && !absl::IsNotFound(fn.status())) return fn;
  }
  WEFT_ASSIGN_OR_RETURN(object, CompileMicro(jit, spec));
  WEFT_ASSIGN_OR_RETURN(MicroFn * fn, Keep(spec, std::move(object)));
  compiled.fetch_add(1, std::memory_order_relaxed);
  return fn;
}

absl::StatusOr<MicroFn*> KernelSet::State::Keep(const MicroSpec& spec, std::string object) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<JitLibrary> library, jit.Load(object));
  WEFT_ASSIGN_OR_RETURN(MicroFn * fn, library->Function<MicroFn>(spec.Symbol()));
  WEFT_RETURN_IF_ERROR(CheckReserve());
  // Two threads may have made the same tile at once; the second is dropped.
  MutexLock lock(mutex);
  if (MicroFn* other = micro[spec.Index()].load(std::memory_order_acquire)) return other;
  objects.insert_or_assign(spec.Index(), std::move(object));
  libraries.push_back(std::move(library));
  micro[spec.Index()].store(fn, std::memory_order_release);
  return fn;
}

KernelSet::KernelSet(CpuTarget target, CodeWatch watch)
    : state_(std::make_unique<State>(std::move(target), std::move(watch))) {}
KernelSet::~KernelSet() = default;

const CpuTarget& KernelSet::target() const { return state_->target(); }
int64_t KernelSet::compiled() const { return state_->compiled.load(std::memory_order_relaxed); }

std::vector<int> KernelSet::MissingAfter(absl::FunctionRef<void()> prepare) {
  std::set<int> found;
  missing = &found;
  const absl::Cleanup end = [] { missing = nullptr; };
  prepare();
  return {found.begin(), found.end()};
}

absl::Status KernelSet::Generate(int kernel) { return state_->Micro(MicroSpec::FromIndex(kernel)).status(); }

std::string KernelSet::ExportObjects() const {
  MutexLock lock(state_->mutex);
  std::string out;
  Put<uint64_t>(&out, kObjectsMagic);
  Put<uint64_t>(&out, state_->objects.size());
  for (const auto& [index, object] : state_->objects) {
    Put<uint64_t>(&out, static_cast<uint64_t>(index));
    Put<uint64_t>(&out, object.size());
    out += object;
  }
  return out;
}

absl::Status KernelSet::ImportObjects(std::span<const std::byte> objects) {
  size_t at = 0;
  const auto take = [&](uint64_t* value) {
    if (objects.size() - at < sizeof(*value)) return false;
    std::memcpy(value, objects.data() + at, sizeof(*value));
    at += sizeof(*value);
    return true;
  };
  uint64_t magic = 0, count = 0;
  if (!take(&magic) || magic != kObjectsMagic || !take(&count) || count > MicroSpec::kCount) return Truncated();
  std::map<int, std::string> imported;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t index = 0, size = 0;
    if (!take(&index) || !take(&size) || index >= MicroSpec::kCount || objects.size() - at < size) return Truncated();
    imported.try_emplace(static_cast<int>(index), reinterpret_cast<const char*>(objects.data()) + at, size);
    at += size;
  }
  if (at != objects.size()) return Truncated();
  MutexLock lock(state_->mutex);
  state_->objects.merge(imported);
  return absl::OkStatus();
}

}  // namespace weft::cpu
