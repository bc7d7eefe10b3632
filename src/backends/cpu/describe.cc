// See describe.h.
#include "src/backends/cpu/describe.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/backends/cpu/kernels/chosen.h"

namespace weft::cpu {
namespace {

// Names of loops end with so many digits of their code's hash.
constexpr uint64_t kDigits = 0xffff;
constexpr size_t kMostOperations = 5;  // in a loop's name

std::string_view PlaceName(BufferRef::Place place) {
  static constexpr std::string_view kNames[] = {"argument", "words", "result", "arena", "constant", "carried"};
  return kNames[static_cast<size_t>(place)];
}

class Describer {
 public:
  Describer(const LoadedProgram& loaded, int threads) : loaded_(loaded), p_(loaded.program), threads_(threads) {}

  LaunchDescription Take() {
    out_.arena_bytes = p_.arena_bytes;
    List(0, 0, "");
    for (KernelDescription& kernel : out_.kernels) {
      for (BufferDescription& buffer : kernel.buffers) {
        const auto [first, last] = lives_[{buffer.place, buffer.index, buffer.offset}];
        buffer.first = first;
        buffer.last = last;
      }
    }
    return std::move(out_);
  }
  KernelDescription Kernel(const Entry& e) const {
    KernelDescription kernel;
    if (e.type == Entry::Type::kLoop) {
      kernel.name = LoopName(p_, e);
      kernel.implementation = absl::StrCat("loop ", loaded_.code->target().name());
      kernel.flops = e.flops;
    } else {
      Host(e, &kernel);
    }
    kernel.tasks = e.tasks;
    kernel.bytes_read = e.reads;
    kernel.bytes_written = e.writes;
    for (const uint32_t at : e.origins) {
      kernel.operations.push_back(p_.origins[at].op);
      kernel.positions.push_back(p_.origins[at].where);
    }
    return kernel;
  }

 private:
  void Host(const Entry& e, KernelDescription* kernel) const {
    kernel->name = p_.host_kernels[e.code];
    kernel->implementation = kernel->name;
    const HostKernel* const host = loaded_.host[e.code];
    if (host == nullptr) return;  // a caller's function
    if (host->flops != nullptr) kernel->flops = host->flops(e.params);
    if (host->prepare != nullptr) {
      const ChoiceScope scope;
      ScratchNeeds needs;
      BlockLoop epilogue;
      epilogue.product = e.epilogue_consumes;
      // It went through when the program was loaded.
      host->prepare({e.params, loaded_.code->kernels(), threads_, needs, e.epilogue >= 0 ? &epilogue : nullptr})
          .IgnoreError();
      if (!scope.chosen().empty()) kernel->implementation = scope.chosen();
    }
    if (!absl::StrContains(kernel->implementation, "amx")) {
      absl::StrAppend(&kernel->implementation, " ", loaded_.code->target().name());
    }
    // Products and convolutions say the type that they read.
    if (host->flops != nullptr && host->input != nullptr) {
      absl::StrAppend(&kernel->implementation, " ", weft::NameOf(host->input(e.params)));
    }
    if (e.epilogue >= 0) {
      Entry loop;
      loop.code = static_cast<uint32_t>(e.epilogue);
      loop.origins = e.origins;
      kernel->epilogue = LoopName(p_, loop);
    }
  }

  void List(uint32_t list, int depth, const std::string& within) {
    for (const Entry& e : p_.lists[list]) {
      const auto at = static_cast<int64_t>(out_.kernels.size());
      KernelDescription kernel;
      if (IsControl(e)) {
        const int64_t trips = p_.controls[e.code].trips;
        const bool repeat = e.type == Entry::Type::kRepeat;
        kernel.control = true;
        kernel.name = !repeat ? "branch" : trips >= 0 ? absl::StrCat("repeat ", trips, " times") : "repeat while";
      } else {
        kernel = Kernel(e);
      }
      kernel.depth = depth;
      kernel.within = within;
      for (const BufferRef& ref : e.buffers) {
        BufferDescription buffer{PlaceName(ref.place), ref.index, ref.offset, at, at};
        const auto [life, fresh] = lives_.try_emplace({buffer.place, buffer.index, buffer.offset}, std::pair(at, at));
        if (!fresh) life->second.second = at;
        kernel.buffers.push_back(buffer);
      }
      out_.kernels.push_back(std::move(kernel));
      if (!IsControl(e)) continue;
      const Control& control = p_.controls[e.code];
      for (size_t i = 0; i < control.lists.size(); ++i) {
        const bool branch = e.type == Entry::Type::kBranch;
        const bool condition = !branch && control.trips < 0 && i == 0;
        List(control.lists[i], depth + 1, branch ? absl::StrCat("case ", i) : condition ? "condition" : "body");
      }
    }
  }

  const LoadedProgram& loaded_;
  const Program& p_;
  const int threads_;
  LaunchDescription out_;
  std::map<std::tuple<std::string_view, uint32_t, int64_t>, std::pair<int64_t, int64_t>> lives_;
};

}  // namespace

std::string LoopName(const Program& program, const Entry& entry) {
  std::vector<std::string_view> operations;
  for (const uint32_t at : entry.origins) {
    const std::string_view op = program.origins[at].op;
    if (std::ranges::find(operations, op) == operations.end()) operations.push_back(op);
  }
  const size_t more = operations.size() > kMostOperations ? operations.size() - kMostOperations : 0;
  operations.resize(operations.size() - more);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: equal in every process, which absl::Hash is not
  for (const char c : program.loops[entry.code]) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return absl::StrCat("weft.", operations.empty() ? "loop" : absl::StrJoin(operations, "_"),
                      more > 0 ? absl::StrCat("_and_", more) : "", ".", absl::Hex(hash & kDigits, absl::kZeroPad4));
}

LaunchDescription Describe(const LoadedProgram& loaded, int threads) { return Describer(loaded, threads).Take(); }

KernelNames NamesOf(const LoadedProgram& loaded, int threads) {
  const Describer describer(loaded, threads);
  KernelNames names;
  for (const EntryList& list : loaded.program.lists) {
    std::vector<KernelNames::Of>& of = names.lists.emplace_back();
    for (const Entry& entry : list) {
      KernelNames::Of& name = of.emplace_back();
      if (IsControl(entry)) continue;
      const KernelDescription kernel = describer.Kernel(entry);
      std::string where;
      for (const std::string& position : kernel.positions) {
        if (position.empty() || absl::StrContains(where, position)) continue;
        absl::StrAppend(&where, where.empty() ? "" : ", ", position);
      }
      SpanName span{.text = kernel.name,
                    .kind = SpanKind::kKernel,
                    .implementation = kernel.implementation,
                    .where = where,
                    .flops = kernel.flops,
                    .bytes_read = kernel.bytes_read,
                    .bytes_written = kernel.bytes_written};
      name.kernel = InternSpanName(span);
      name.share = InternSpanName({.text = kernel.name, .kind = SpanKind::kShare});
    }
  }
  return names;
}

}  // namespace weft::cpu
